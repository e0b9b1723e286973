// What happens to memory, told to Python while it listens: torch.ocl.memory._record_memory_history.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ocl {

enum class MemoryEvent : int { kAlloc = 0, kFree = 1, kSegment = 2, kSegmentFree = 3, kOom = 4 };

// Notes an event of this thread if Python listens; locks may be held.
void note_memory(MemoryEvent event, int device, const void* address, size_t bytes);
// Tells Python what this thread noted; takes the interpreter's lock, so that none may be held.
void tell_memory_events();

}  // namespace ocl
