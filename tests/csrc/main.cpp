// Tests of csrc/runtime and csrc/fusion without Python, a driver or a device.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <unistd.h>

#include "entries.h"
#include "fake_opencl.h"

int main(int count, char** arguments) {
  alarm(240);  // seconds: a deadlock ends the process
  fake::open();
  tests::serve_chains();
  return doctest::Context(count, arguments).run();
}
