#include "runtime/interpreter.h"

namespace ocl {

namespace {

int (*has_interpreter)() = nullptr;
void* (*let_interpreter)() = nullptr;
void (*take_interpreter)(void*) = nullptr;
void (*interrupt_python)() = nullptr;
_object* type_of_interrupts = nullptr;
int (*ensure_interpreter)() = nullptr;
void (*release_interpreter)(int) = nullptr;
int (*take_interrupt)() = nullptr;
thread_local bool has_noted_interrupt = false;
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

_object* interrupt_type() { return type_of_interrupts; }

// A signal that waits for the interpreter would end the first call of Python before it begins.
Uninterrupted::Uninterrupted() {
  has_noted_interrupt = false;
  if (!take_interrupt) return;
  const int state = ensure_interpreter();
  has_noted_interrupt = take_interrupt();
  release_interpreter(state);
}

Uninterrupted::~Uninterrupted() {
  if (has_noted_interrupt) interrupt();
}

const std::string& python_error() { return error_of_python; }

}  // namespace ocl

extern "C" {

// What interrupts Python, which may be called without the interpreter's lock, and
// `KeyboardInterrupt`.
void ocl_interrupt_with(void (*interrupt)(), void* type) {
  ocl::interrupt_python = interrupt;
  ocl::type_of_interrupts = static_cast<_object*>(type);
}

// What takes and releases the interpreter's lock, and what takes back, with it, a Ctrl-C that no
// handler has met: 1 if there was one.
void ocl_take_interrupts_with(int (*ensure)(), void (*release)(int), int (*take)()) {
  ocl::ensure_interpreter = ensure;
  ocl::release_interpreter = release;
  ocl::take_interrupt = take;
}

// Notes a Ctrl-C within `Uninterrupted`, in its thread.
void ocl_note_interrupt() { ocl::has_noted_interrupt = true; }

void ocl_python_failed(const char* text) { ocl::error_of_python = text; }
}
