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
void (*put_aside)(void**, void**, void**) = nullptr;
void (*put_back)(void*, void*, void*) = nullptr;
thread_local bool has_noted_interrupt = false;
thread_local int uninterrupted_calls = 0;  // one within the other
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

// A signal that waits for the interpreter would end the first call of Python before it begins, and
// memory is freed while an exception is on its way, with which no call of Python succeeds.
Uninterrupted::Uninterrupted() {
  const bool is_outermost = !uninterrupted_calls++;
  if (is_outermost) has_noted_interrupt = false;
  if (!take_interrupt) return;
  const int state = ensure_interpreter();
  put_aside(&error_[0], &error_[1], &error_[2]);
  if (is_outermost) has_noted_interrupt = take_interrupt();
  release_interpreter(state);
}

Uninterrupted::~Uninterrupted() {
  if (error_[0]) {
    const int state = ensure_interpreter();
    put_back(error_[0], error_[1], error_[2]);
    release_interpreter(state);
  }
  if (!--uninterrupted_calls && has_noted_interrupt) interrupt();
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

// What takes and releases the interpreter's lock; what takes back, with it, a Ctrl-C that no
// handler has met: 1 if there was one; and what takes an exception that is on its way, and gives it
// back.
void ocl_take_interrupts_with(int (*ensure)(), void (*release)(int), int (*take)(),
                              void (*aside)(void**, void**, void**),
                              void (*back)(void*, void*, void*)) {
  ocl::ensure_interpreter = ensure;
  ocl::release_interpreter = release;
  ocl::put_aside = aside;
  ocl::put_back = back;
  ocl::take_interrupt = take;
}

// Notes a Ctrl-C within `Uninterrupted`, in its thread.
void ocl_note_interrupt() { ocl::has_noted_interrupt = true; }

void ocl_python_failed(const char* text) { ocl::error_of_python = text; }
}
