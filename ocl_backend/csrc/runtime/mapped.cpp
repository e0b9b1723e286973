// Intel's runtime maps 32 KiB of a buffer in 4 us, however many bytes; it reads them in 9.
#include "runtime/mapped.h"

#include "runtime/deferred.h"
#include "runtime/faults.h"
#include "runtime/observer.h"
#include "runtime/profile.h"
#include "runtime/submitter.h"
#include "runtime/transfer.h"

namespace ocl {

Mapped::Mapped(const void* address, size_t bytes, bool is_written) {
  observer().unrepeatable();
  observer().before_command();
  const Location place = locate_or_throw(address, "mapping");
  wait_for_programs(place.block->device);
  if (is_written) ++place.block->writes;
  Device& device = device_at(place.block->device);
  buffer_ = place.block->buffer;
  queue_ = queue_of(place.block->device);
  Timed timed(place.block->device, Activity::kCopy, "map to host", bytes);
  cl_int status = CL_SUCCESS;
  data_ =
      cl.clEnqueueMapBuffer(queue_, buffer_, CL_TRUE, is_written ? CL_MAP_READ_WRITE : CL_MAP_READ,
                            place.offset, bytes, 0, nullptr, timed.event(), &status);
  check(status, device, "mapping");
  raise_fault(device);
}

Mapped::~Mapped() {
  if (data_) cl.clEnqueueUnmapMemObject(queue_, buffer_, data_, 0, nullptr, nullptr);
}

}  // namespace ocl
