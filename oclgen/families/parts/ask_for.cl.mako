<%doc>
Asks a processor's caches for what is read later.
</%doc>\
// asks for a line, up to the first cache (3) or the second (2); SPIR-V has no such instruction
#if defined(__SPIRV64__) || defined(__SPIRV32__)
#define ASK_FOR(place, nearness)
#else
#define ASK_FOR(place, nearness) __builtin_prefetch(place, 0, nearness)
#endif
