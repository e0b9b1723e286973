// Prepared kernel launches: everything that does not change is set once, a call passes only what
// does. Called from Python through ctypes, and by what is recalled; nothing here waits for the
// device.
#include "runtime/launch.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <sstream>
#include <vector>

#include "runtime/deferred.h"
#include "runtime/faults.h"
#include "runtime/profile.h"
#include "runtime/submitter.h"

namespace ocl {

namespace {

enum Kind : int32_t { kBuffer = 0, kInt = 1, kLong = 2, kFloat = 3, kConstBuffer = 4 };

bool is_buffer(int32_t kind) { return kind == kBuffer || kind == kConstBuffer; }

// Runs that a launch makes with a kernel which others use, too. Where sizes vary, thousands of
// launches run a few times each; kernels of their own would be most of a program's memory.
constexpr int kSharingRuns = 16;

// A kernel of a program. Launches of many sizes share it: each sets the arguments that it has
// otherwise than the launch before it. One that runs again and again gets a kernel of its own,
// whose arguments are mostly what they were at its last run. All this under the device's lock of
// submission.
struct Kernel {
  explicit Kernel(cl_kernel made) : kernel(made) {}
  ~Kernel() { cl.clReleaseKernel(kernel); }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  struct Argument {
    bool is_set = false;
    int64_t value = 0;  // a buffer's handle or the bits of a number
  };
  cl_kernel kernel;
  uint64_t generation = 0;
  std::vector<Argument> arguments;
};

// An argument that changes from call to call. A buffer stands for two arguments of the kernel,
// the pointer at `index` and its `long` element offset behind it. The kernel writes to none that
// its text declares `const`.
struct Changing {
  Kind kind;
  cl_uint index;
  int32_t item_bytes;
};

// The place of a number that is the same in every call of a launch.
struct Fixed {
  cl_uint index;
  uint32_t bytes;
};

// What launches that differ in sizes and numbers alone have in common: they share it, because where
// sizes vary a process keeps some ten thousand.
struct Form {
  c10::DeviceIndex device;
  const char* name;
  cl_uint dimensions;
  bool has_local;
  std::vector<Changing> changing;
  std::vector<Fixed> fixed;
};

struct Launch final : Prepared {
  int enqueue(const int64_t* words) override;
  int run(const int64_t* words) override;
  int submit(const int64_t* resolved) override;
  int check(const int64_t* words) override;
  Handle apart() override;
  std::shared_ptr<Launch> copied() const;
  const char* label() const override { return form->name; }
  int resolve(const int64_t* words, Resolved& resolved) const;
  bool is_ready() const override { return ready.load(std::memory_order_acquire); }
  int64_t awaited() const override { return is_ready() ? 0 : number; }

  std::shared_ptr<Kernel> kernel;  // null until its program is built
  std::atomic<bool> ready{false};  // whether it is there
  int64_t number;                  // by which Python knows that program
  std::shared_ptr<const Form> form;
  size_t global_size[3];
  size_t local_size[3];
  std::vector<int64_t> numbers;  // the bits of each of the form's `fixed`
  int runs = 0;  // with a kernel that others use, too, `kSharingRuns` at most
  std::atomic<bool> was_accepted{false};  // by the driver, once
};

int fail_launch(const Launch& launch, int status, const std::string& reason) {
  std::ostringstream text;
  const Form& form = *launch.form;
  text << device_at(form.device).name << ": kernel " << form.name << ", global size (";
  for (cl_uint d = 0; d < form.dimensions; ++d) text << (d ? ", " : "") << launch.global_size[d];
  text << "), local size ";
  if (!form.has_local) text << "left to the runtime";
  for (cl_uint d = 0; form.has_local && d < form.dimensions; ++d)
    text << (d ? ", " : "(") << launch.local_size[d];
  text << (form.has_local ? "): " : ": ") << reason;
  return ocl::fail(status, text.str());
}

int fail_at(const Launch& launch, cl_uint index, const std::string& reason) {
  return fail_launch(launch, kFailed, "argument " + std::to_string(index) + ": " + reason);
}

// Sets an argument to the first `bytes` of `bits`, unless the kernel has it so.
int set(const Launch& launch, cl_uint index, size_t bytes, int64_t bits) {
  auto& arguments = launch.kernel->arguments;
  if (arguments.size() <= index) arguments.resize(index + 1);
  auto& known = arguments[index];
  if (known.is_set && known.value == bits) return kOk;
  const cl_int status = cl.clSetKernelArg(launch.kernel->kernel, index, bytes, &bits);
  known = {status == CL_SUCCESS, bits};
  return status == CL_SUCCESS ? kOk : fail_at(launch, index, error_name(status));
}

// Finds the memory of an address that is not null.
int find(const Launch& launch, const Changing& argument, int64_t address, Location& found) {
  found = locate(reinterpret_cast<const void*>(address));
  if (!found.block)
    return fail_at(launch, argument.index,
                   "not memory of an ocl device. Move the tensor there first");
  if (found.block->device != launch.form->device)
    return fail_at(launch, argument.index,
                   "lies on ocl:" + std::to_string(found.block->device) +
                       ", the kernel runs on ocl:" + std::to_string(launch.form->device) +
                       ". Move the tensors to one device");
  if (found.offset % size_t(argument.item_bytes))
    return fail_at(launch, argument.index,
                   "starts at byte " + std::to_string(found.offset) +
                       ", which is no multiple of its " + std::to_string(argument.item_bytes) +
                       "-byte items. Clone the tensor");
  return kOk;
}

int set_fixed(const Launch& launch) {
  auto number = launch.numbers.begin();
  for (const auto& argument : launch.form->fixed)
    if (const int status = set(launch, argument.index, argument.bytes, *number++)) return status;
  return kOk;
}

// The first bytes of a number as the kernel has it.
int64_t bits_of(Kind kind, int64_t word) {
  if (kind != kFloat) return word;
  double given;
  std::memcpy(&given, &word, sizeof given);
  const float value = float(given);
  int32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

int set_arguments(const Launch& launch, const int64_t* resolved) {
  Kernel& kernel = *launch.kernel;
  if (kernel.generation != release_generation()) {
    // a buffer given back to the driver may return under the same handle
    for (auto& argument : kernel.arguments) argument.is_set = false;
    kernel.generation = release_generation();
  }
  if (const int status = set_fixed(launch)) return status;
  static_assert(sizeof(cl_mem) == sizeof(int64_t), "a buffer's handle is kept as a number");
  for (const auto& argument : launch.form->changing) {
    const bool is_wide = is_buffer(argument.kind) || argument.kind == kLong;
    const size_t bytes = is_wide ? sizeof(int64_t) : sizeof(int32_t);
    if (const int status = set(launch, argument.index, bytes, *resolved++)) return status;
    if (!is_buffer(argument.kind)) continue;
    if (const int status = set(launch, argument.index + 1, sizeof(int64_t), *resolved++))
      return status;
  }
  return kOk;
}

// Another kernel of a launch's program; null if the runtime refuses.
std::shared_ptr<Kernel> another_kernel(const Launch& launch) {
  cl_program program = nullptr;
  if (cl.clGetKernelInfo(launch.kernel->kernel, CL_KERNEL_PROGRAM, sizeof program,
                         static_cast<void*>(&program), nullptr) != CL_SUCCESS)
    return nullptr;
  cl_int status = CL_SUCCESS;
  auto* made = cl.clCreateKernel(program, launch.form->name, &status);
  return made ? std::make_shared<Kernel>(made) : nullptr;
}

// Gives a launch that runs again and again a kernel of its own; one that is refused shares on.
void stop_sharing(Launch& launch) {
  // Python, which finds the kernel for further launches, and this one
  constexpr int64_t kOwners = 2;
  if (launch.runs > kSharingRuns || launch.kernel.use_count() <= kOwners) return;
  if (++launch.runs <= kSharingRuns) return;
  if (auto made = another_kernel(launch)) launch.kernel = std::move(made);
}

bool lacks_memory(cl_int code) {
  return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY;
}

}  // namespace

const char* keep_name(const char* name) {
  static std::mutex mutex;
  static auto* names = new std::set<std::string>();
  const std::lock_guard<std::mutex> lock(mutex);
  return names->insert(name).first->c_str();
}

int Launch::enqueue(const int64_t* words) {
  if (in_forked_child())
    return fail_launch(*this, kFailed,
                       "the device cannot be used in a forked child. "
                       "Start the child with the 'spawn' method");
  const c10::DeviceIndex device = form->device;
  return has_to_wait(device, *this) ? defer(device, *this, words, is_address.size()) : run(words);
}

int Launch::check(const int64_t* words) {
  for (const auto& argument : form->changing) {
    const int64_t word = *words++;
    if (!is_buffer(argument.kind) || !word) continue;
    Location found;
    if (const int status = find(*this, argument, word, found)) return status;
  }
  return kOk;
}

// Finds the memory of each address, and counts the command as one that may write there.
int Launch::resolve(const int64_t* words, Resolved& resolved) const {
  for (const auto& argument : form->changing) {
    const int64_t word = *words++;
    if (!is_buffer(argument.kind)) {
      resolved.words.push_back(bits_of(argument.kind, word));
      continue;
    }
    if (!word) {
      resolved.words.append({0, 0});
      continue;
    }
    Location found;
    if (const int status = find(*this, argument, word, found)) return status;
    may_fault(device_at(form->device), word);
    resolved.add(found, int64_t(found.offset) / argument.item_bytes, argument.kind == kBuffer);
  }
  return kOk;
}

// Sets the arguments and enqueues, as one step.
int Launch::submit(const int64_t* resolved) {
  Device& one = device_at(form->device);
  const std::lock_guard<std::mutex> lock(one.submission);
  stop_sharing(*this);
  if (const int status = set_arguments(*this, resolved)) return status;
  one.last_kernel.store(form->name, std::memory_order_relaxed);
  Timed timed(form->device, Activity::kKernel, form->name);
  const cl_int code =
      cl.clEnqueueNDRangeKernel(one.queue, kernel->kernel, form->dimensions, nullptr, global_size,
                                form->has_local ? local_size : nullptr, 0, nullptr, timed.event());
  if (code == CL_SUCCESS) {
    was_accepted.store(true, std::memory_order_relaxed);
    return kOk;
  }
  return fail_launch(*this, lacks_memory(code) ? kOutOfMemory : kRefused, error_name(code));
}

// The same launch with the same kernel, which is there.
std::shared_ptr<Launch> Launch::copied() const {
  const auto made = std::make_shared<Launch>();
  made->is_address = is_address;
  made->kernel = kernel;
  made->ready = true;
  made->number = number;
  made->form = form;
  std::copy(std::begin(global_size), std::end(global_size), made->global_size);
  std::copy(std::begin(local_size), std::end(local_size), made->local_size);
  made->numbers = numbers;
  return made;
}

Handle Launch::apart() {
  const std::lock_guard<std::mutex> lock(device_at(form->device).submission);
  auto made = copied();
  made->kernel = another_kernel(*this);
  TORCH_CHECK(made->kernel, "kernel ", form->name,
              ": the runtime makes no further kernel of its program");
  return made;
}

int Launch::run(const int64_t* words) {
  if (!is_ready())
    if (const int status = complete(number)) return status;
  if (!is_ready()) return fail_unfinished();
  Resolved resolved;
  if (const int status = resolve(words, resolved)) return status;
  return hand_over(form->device, *this, resolved, was_accepted.load(std::memory_order_relaxed));
}

}  // namespace ocl

extern "C" {

// Returns a kernel of a program that launches may share, null if the runtime refuses:
// `ocl_last_error` says why.
void* ocl_kernel_new(void* program, const char* name) {
  ocl::cl_int status = ocl::CL_SUCCESS;
  auto* made = ocl::cl.clCreateKernel(static_cast<ocl::cl_program>(program), name, &status);
  if (made) return new std::shared_ptr<ocl::Kernel>(std::make_shared<ocl::Kernel>(made));
  ocl::fail(ocl::kFailed, std::string("clCreateKernel failed: ") + ocl::error_name(status));
  return nullptr;
}

// Returns how many arguments a kernel takes, -1 if the runtime does not say.
int ocl_kernel_arguments(void* kernel) {
  ocl::cl_uint count = 0;
  const auto& made = *static_cast<std::shared_ptr<ocl::Kernel>*>(kernel);
  const ocl::cl_int status =
      ocl::cl.clGetKernelInfo(made->kernel, ocl::CL_KERNEL_NUM_ARGS, sizeof count, &count, nullptr);
  return status == ocl::CL_SUCCESS ? int(count) : -1;
}

// Launches keep the kernel.
void ocl_kernel_delete(void* kernel) { delete static_cast<std::shared_ptr<ocl::Kernel>*>(kernel); }

// `kernel` is null if its program is being built, which Python knows by `number`: then
// `ocl_launch_complete` brings it. `kinds` are `Kind`s; `indices` are positions among the kernel's
// arguments; `item_bytes` the size of a buffer's items; `local` may be null. Behind them what never
// changes: positions, bytes, and values, 8 bytes each. Null if the runtime refuses one of those:
// `ocl_last_error` says which.
void* ocl_launch_new(int device, void* kernel, int64_t number, const char* name,
                     uint32_t dimensions, const size_t* global, const size_t* local, uint32_t count,
                     const int32_t* kinds, const int32_t* indices, const int32_t* item_bytes,
                     uint32_t fixed, const uint32_t* places, const uint32_t* bytes,
                     const int64_t* values) {
  const auto launch = std::make_shared<ocl::Launch>();
  if (kernel) launch->kernel = *static_cast<std::shared_ptr<ocl::Kernel>*>(kernel);
  launch->ready = kernel != nullptr;
  launch->number = number;
  const auto form = std::make_shared<ocl::Form>();
  form->device = c10::DeviceIndex(device);
  form->name = ocl::keep_name(name);
  form->dimensions = dimensions;
  form->has_local = local != nullptr;
  for (uint32_t d = 0; d < dimensions; ++d) {
    launch->global_size[d] = global[d];
    if (local) launch->local_size[d] = local[d];
  }
  for (uint32_t i = 0; i < count; ++i) {
    form->changing.push_back({ocl::Kind(kinds[i]), ocl::cl_uint(indices[i]), item_bytes[i]});
    launch->is_address.push_back(ocl::is_buffer(kinds[i]));
  }
  for (uint32_t i = 0; i < fixed; ++i) form->fixed.push_back({places[i], bytes[i]});
  launch->form = form;
  launch->numbers.assign(values, values + fixed);
  if (!kernel) return new ocl::Handle(launch);
  const std::lock_guard<std::mutex> lock(ocl::device_at(form->device).submission);
  return ocl::set_fixed(*launch) ? nullptr : new ocl::Handle(launch);
}

// A launch of the same kernel as `prepared`, which never runs. `words` are its global sizes, its
// local sizes if there are any, and what never changes, all in the order of `ocl_launch_new`.
void* ocl_launch_like(void* prepared, const int64_t* words) {
  const auto& like = static_cast<const ocl::Launch&>(**static_cast<ocl::Handle*>(prepared));
  const ocl::Form& form = *like.form;
  const auto launch = like.copied();
  for (uint32_t d = 0; d < form.dimensions; ++d) launch->global_size[d] = size_t(*words++);
  for (uint32_t d = 0; form.has_local && d < form.dimensions; ++d)
    launch->local_size[d] = size_t(*words++);
  std::copy(words, words + launch->numbers.size(), launch->numbers.begin());
  return new ocl::Handle(launch);
}

// Gives a launch its kernel; a later call changes nothing. Returns a `Status`: the runtime may
// refuse what never changes.
int ocl_launch_complete(void* prepared, void* kernel) {
  auto& launch = static_cast<ocl::Launch&>(**static_cast<ocl::Handle*>(prepared));
  const std::lock_guard<std::mutex> lock(ocl::device_at(launch.form->device).submission);
  if (launch.is_ready()) return ocl::kOk;
  launch.kernel = *static_cast<std::shared_ptr<ocl::Kernel>*>(kernel);
  const int status = ocl::set_fixed(launch);
  launch.ready.store(status == ocl::kOk, std::memory_order_release);
  return status;
}

void ocl_delete(void* prepared) { delete static_cast<ocl::Handle*>(prepared); }

const char* ocl_last_error() { return ocl::last_error().c_str(); }
}
