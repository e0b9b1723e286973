// What plans make of weights alone (packed weights, filter transforms, folded normalisations), kept
// from call to call where no gradient is recorded.
//
// It holds as long as nothing is written to the weights: every command counts what it writes
// (`Block::writes`), so a change by whatever means is seen. What is made is kept from the second
// call on whose weights were not written to, so operands that change every time cost no memory.
#pragma once

#include <memory>
#include <vector>

#include "runtime/memory.h"

namespace ocl {

using Spaces = std::vector<c10::DataPtr>;
using Addresses = c10::SmallVector<int64_t, 8>;

// Whether this thread's calls keep and use what is made of weights.
bool keeps_weights();

using Counts = std::vector<uint64_t>;  // of writes to the block of each address

struct Kept {
  std::shared_ptr<const Spaces> spaces;  // what was made; null: it is to be made
  Counts writes;  // until now, if there was none since the last call; else empty
};

// What `maker` made of the weights at these addresses.
Kept look_up_kept(const void* maker, const Addresses& weights);
// The same for a graph, which keeps what it reads and makes nothing anew: changes no entry.
Kept read_kept(const void* maker, const Addresses& weights);
// Whether `bytes` more of what is made may be kept on a device.
bool has_room_to_keep(c10::DeviceIndex device, size_t bytes);
// The commands so far that write to each address's block.
Counts writes_to(const Addresses& weights);
// Keeps what was made of weights, if there is room and nothing was written to them since
// `look_up_kept` returned `writes`.
void keep(const void* maker, const Addresses& weights, const Counts& writes, Spaces spaces,
          size_t bytes);

// Lets go of what a maker made, of what was made of a block's contents, or of a device's.
void forget_kept_by(const void* maker);
void forget_kept_of(const Block& block);
void forget_kept_on(c10::DeviceIndex device);

}  // namespace ocl
