#include "runtime/status.h"

#include <c10/util/Exception.h>

#include "runtime/interpreter.h"

namespace ocl {

namespace {

thread_local std::string error_text;

}  // namespace

int fail(int status, const std::string& text) {
  error_text = text;
  return status;
}

int fail_with_exception() try { throw; } catch (const c10::OutOfMemoryError& error) {
  return fail(kOutOfMemory, error.what_without_backtrace());
} catch (const c10::AcceleratorError& error) {
  return fail(kRefused, error.what_without_backtrace());
} catch (const Interrupted& error) {
  return fail(kInterrupted, error.what());
} catch (const std::exception& error) {
  return fail(kFailed, error.what());
}

const std::string& last_error() { return error_text; }

void raise(int status) {
  status %= kPython;
  if (status == kInterrupted && interrupt_type()) throw Interrupted(interrupt_type(), error_text);
  TORCH_CHECK_WITH(OutOfMemoryError, status != kOutOfMemory, error_text);
  if (status == kRefused)
    throw c10::AcceleratorError({__func__, __FILE__, uint32_t(__LINE__)}, status, error_text);
  TORCH_CHECK(false, error_text);
}

}  // namespace ocl
