// An exception that torch's bindings turn into one of Python's.
#pragma once

#include <exception>
#include <string>
#include <utility>

struct _object;  // NOLINT(bugprone-reserved-identifier): PyObject, as Python declares it

namespace torch {

// As torch/csrc/Exceptions.h declares it, which wants Python's headers: bindings raise what it
// names with its text. Compilers tell such classes by their names, not by where they are declared.
struct PyTorchError : public std::exception {
  PyTorchError() = default;
  PyTorchError(std::string text) : msg(std::move(text)) {}
  virtual _object* python_type() = 0;
  const char* what() const noexcept override { return msg.c_str(); }
  std::string msg;
};

}  // namespace torch

namespace ocl {

// Ctrl-C in a call of Python: torch's other exceptions are errors, which programs handle.
struct Interrupted final : torch::PyTorchError {
  Interrupted(_object* type, std::string text) : PyTorchError(std::move(text)), type_(type) {}
  _object* python_type() override { return type_; }

 private:
  _object* type_;
};

}  // namespace ocl
