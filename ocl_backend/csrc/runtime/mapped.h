// Bytes of a processor's buffer as its host sees them: nothing is copied.
#pragma once

#include "runtime/memory.h"

namespace ocl {

class Mapped {
 public:
  // Waits for everything enqueued; raises what a command before died of.
  Mapped(const void* address, size_t bytes, bool is_written);
  // Commands that follow see what was written.
  ~Mapped();
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  void* data() const { return data_; }

 private:
  cl_mem buffer_ = nullptr;
  cl_command_queue queue_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace ocl
