#include "runtime/system.h"

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <string>
#else
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
#endif

namespace ocl {

#ifdef _WIN32

void* open_library(const char* path) {
  const int length = MultiByteToWideChar(CP_UTF8, 0, path, -1, nullptr, 0);
  if (length <= 0) return nullptr;
  std::wstring wide(size_t(length), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, path, -1, wide.data(), length);
  return LoadLibraryW(wide.c_str());
}

void* address_in(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

int32_t thread_id() { return int32_t(GetCurrentThreadId()); }

void when_forked(void (*)()) {}

#else

void* open_library(const char* path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }

void* address_in(void* library, const char* name) { return dlsym(library, name); }

int32_t thread_id() {
#ifdef __APPLE__
  uint64_t id = 0;
  pthread_threadid_np(nullptr, &id);
  return int32_t(id);
#else
  return int32_t(gettid());
#endif
}

void when_forked(void (*told)()) { pthread_atfork(nullptr, nullptr, told); }

#endif

}  // namespace ocl
