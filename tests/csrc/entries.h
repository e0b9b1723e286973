// The shim's entries as Python calls them, and what the tests make of them.
#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/launch.h"

extern "C" {
void ocl_add_device(void* context, void* queue, const char* name, size_t total, size_t largest,
                    int doubles);
void ocl_open_later(void (*opener)(), int promise);
void ocl_set_opening_status(int status, const char* text);
void ocl_set_memory_limit(int device, size_t bytes);
void* ocl_launch_new(int device, void* kernel, int64_t number, const char* name,
                     uint32_t dimensions, const size_t* global, const size_t* local, uint32_t count,
                     const int32_t* kinds, const int32_t* indices, const int32_t* item_bytes,
                     uint32_t fixed, const uint32_t* places, const uint32_t* bytes,
                     const int64_t* values);
void* ocl_kernel_new(void* program, const char* name);
void ocl_kernel_delete(void* kernel);
int ocl_launch_complete(void* prepared, void* kernel);
void ocl_complete_with(void (*complete)(int64_t, int*));
void ocl_interrupt_with(void (*interrupt)(), void* type);
void ocl_take_interrupts_with(int (*ensure)(), void (*release)(int), int (*take)(),
                              void (*aside)(void**, void**, void**),
                              void (*back)(void*, void*, void*));
void ocl_note_interrupt();
int ocl_wait_for_programs(int device);
void ocl_set_submitter(int device, int how);
void ocl_stop_submitters();
void ocl_drop_deferred();
void ocl_sequence_await(void* sequence, int64_t number);
void ocl_sequence_replace(void* sequence, void* by);
void* ocl_sequence_new(int device, uint32_t given, uint32_t fixed, const int64_t* words,
                       uint32_t workspaces, const size_t* bytes, uint32_t launches,
                       void* const* handles, const uint32_t* lengths, const uint32_t* places,
                       uint32_t of_weights);
size_t ocl_kept_bytes(int device);
void ocl_listen_to_memory(void (*tell)(int event, int device, int64_t address, int64_t bytes));
void ocl_delete(void* prepared);
const char* ocl_last_error();
void ocl_hold_with(void (*run)(const int64_t*, int64_t, int64_t*), int (*has)(), void* (*let)(),
                   void (*take)(void*));
void ocl_python_failed(const char* text);
void* ocl_held_new(int64_t number, const char* name, void* alone, int is_asked, int device,
                   uint32_t kind, uint32_t follows, int64_t items, int64_t dtype, uint32_t result,
                   int begins, int may_be_loose, uint32_t ways, const uint32_t* places);
int ocl_enqueue(void* prepared, const int64_t* words);
int64_t ocl_held_gone();
int ocl_settle();
int ocl_is_holding();
void ocl_set_fusion(int on);
void ocl_forget_recalled();
void ocl_suspend_recall(int by);
}

namespace tests {

constexpr size_t kItems = 8;
constexpr size_t kBytes = kItems * sizeof(int64_t);

// A handle of the shim, deleted as Python deletes it.
class Owned {
 public:
  explicit Owned(void* handle) : handle_(handle) {}
  ~Owned() { ocl_delete(handle_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  void* get() const { return handle_; }
  const ocl::Handle& shared() const { return *static_cast<ocl::Handle*>(handle_); }

 private:
  void* handle_;
};

// Memory of `device`, an `int64_t` for each of `kItems` items.
c10::DataPtr items(int device = 0);
int64_t address(const c10::DataPtr& memory);
void fill(const c10::DataPtr& memory, int64_t value);
// The value of all items; raises if they differ. Waits, so it runs what is held back.
int64_t value_of(const c10::DataPtr& memory);

// A launch of the fake kernel `name`: takes the addresses of in and out, and a value.
void* adding(const char* name, int device = 0);

enum Kinds : uint32_t { kFirst = 1, kSecond = 2 };

// A launch that may be held back, of one kind behind those that it `follows`: as `adding`, with
// the number 0 behind its words.
void* held_adding(int64_t number, const char* name, uint32_t kind, uint32_t follows,
                  bool is_asked = false);

// What runs chains in place of Python: several launches as one launch of "fused".
void serve_chains();
extern std::atomic<int> asked_python;
// What that returns once instead, if it is not 0.
extern std::atomic<int64_t> next_fusion_fails;
// Whether it meets a Ctrl-C the next time, or is left by an exception.
extern std::atomic<bool> next_fusion_is_interrupted, next_fusion_is_left;

}  // namespace tests
