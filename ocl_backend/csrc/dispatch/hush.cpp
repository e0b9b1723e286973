// Lets a thread ask the CPU about a call without what that warns of: torch keeps the warnings of
// C++ until the program's own call returns, and then shows them as that call's.
#include <c10/util/Exception.h>

namespace {

class Silent final : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};
}  // namespace

extern "C" {

// Drops what torch warns of in this thread, until `ocl_heed` takes what is returned here.
void* ocl_hush() {
  static Silent silent;
  auto* before = c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::set_warning_handler(&silent);
  return before;
}

void ocl_heed(void* before) {
  c10::WarningUtils::set_warning_handler(static_cast<c10::WarningHandler*>(before));
}
}
