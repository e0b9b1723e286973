// Python's interpreter as the runtime has to mind it: a thread that waits for another one, which
// may run Python, lets go of the interpreter's lock.
#pragma once

#include <mutex>
#include <string>

#include "runtime/python_error.h"

namespace ocl {

// Locks a mutex for as long as it exists.
class PatientLock {
 public:
  explicit PatientLock(std::recursive_mutex& mutex);
  ~PatientLock() { mutex_.unlock(); }
  PatientLock(const PatientLock&) = delete;
  PatientLock& operator=(const PatientLock&) = delete;

 private:
  std::recursive_mutex& mutex_;
};

// Functions of Python's interface: whether this thread has the lock, letting go of it, taking it.
// Without them there is no interpreter to mind.
void mind_interpreter(int (*has)(), void* (*let)(), void (*take)(void*));

// Lets the main thread meet `KeyboardInterrupt` soon, if there is an interpreter.
void interrupt();

// Python's `KeyboardInterrupt`, null without an interpreter.
_object* interrupt_type();

// Stands around a call of Python whose work must not end halfway: the main thread meets a Ctrl-C of
// before or of meanwhile (`ocl_note_interrupt`) behind it, and behind those that it stands within.
class Uninterrupted {
 public:
  Uninterrupted();
  ~Uninterrupted();
  Uninterrupted(const Uninterrupted&) = delete;
  Uninterrupted& operator=(const Uninterrupted&) = delete;

 private:
  void* error_[3] = {};  // of Python: its type, value and traceback
};

// What a callback into Python ended with, in this thread.
const std::string& python_error();

}  // namespace ocl
