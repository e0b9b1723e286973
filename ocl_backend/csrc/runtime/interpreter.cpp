#include "runtime/interpreter.h"

namespace ocl {

namespace {

int (*has_interpreter)() = nullptr;
void* (*let_interpreter)() = nullptr;
void (*take_interpreter)(void*) = nullptr;
void (*interrupt_python)() = nullptr;
thread_local std::string error_of_python;

}  // namespace

PatientLock::PatientLock(std::recursive_mutex& mutex) : mutex_(mutex) {
  if (mutex_.try_lock()) return;
  void* state = has_interpreter && has_interpreter() ? let_interpreter() : nullptr;
  mutex_.lock();
  if (state) take_interpreter(state);
}

void mind_interpreter(int (*has)(), void* (*let)(), void (*take)(void*)) {
  has_interpreter = has;
  let_interpreter = let;
  take_interpreter = take;
}

void interrupt() {
  if (interrupt_python) interrupt_python();
}

const std::string& python_error() { return error_of_python; }

}  // namespace ocl

extern "C" {

// What interrupts Python: it may be called without the interpreter's lock.
void ocl_interrupt_with(void (*interrupt)()) { ocl::interrupt_python = interrupt; }

void ocl_python_failed(const char* text) { ocl::error_of_python = text; }
}
