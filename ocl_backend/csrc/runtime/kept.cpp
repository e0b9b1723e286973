#include "runtime/kept.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>

namespace ocl {

namespace {

constexpr size_t kMostEntries = 1 << 12;  // bound on weights that are watched
constexpr size_t kShare = 8;              // of a device's memory, one part at most is kept

struct Entry {
  c10::DeviceIndex device = 0;
  Counts writes;  // at the last call
  std::shared_ptr<const Spaces> spaces;
  size_t bytes = 0;
};

using Place = std::pair<const void*, std::vector<int64_t>>;  // maker, addresses
using Entries = std::map<Place, Entry>;

// Leaked on purpose, as the allocator's: tensors die after static destructors have run.
struct Shelf {
  std::mutex mutex;
  Entries entries;
  std::array<size_t, kMostDevices> bytes{};
};
Shelf& shelf() {
  static auto* all = new Shelf();
  return *all;
}
std::atomic<bool> is_on{true};

Block* block_at(int64_t address) { return locate(reinterpret_cast<const void*>(address)).block; }

Place place_of(const void* maker, const Addresses& weights) {
  return {maker, {weights.begin(), weights.end()}};
}

// Takes the spaces of an entry, to be freed without the lock: that asks for the shelf again.
std::shared_ptr<const Spaces> emptied(Entry& entry) {
  shelf().bytes[size_t(entry.device)] -= std::exchange(entry.bytes, 0);
  return std::exchange(entry.spaces, nullptr);
}

template <typename Condition>
void forget_if(Condition is_to_go) {
  std::vector<std::shared_ptr<const Spaces>> freed;
  const std::lock_guard<std::mutex> lock(shelf().mutex);
  auto& entries = shelf().entries;
  for (auto at = entries.begin(); at != entries.end();) {
    if (!is_to_go(at->first, at->second)) {
      ++at;
      continue;
    }
    freed.push_back(emptied(at->second));
    at = entries.erase(at);
  }
}

}  // namespace

bool keeps_weights() {
  return is_on.load(std::memory_order_relaxed) && !c10::GradMode::is_enabled() &&
         !in_forked_child();
}

Counts writes_to(const Addresses& weights) {
  Counts writes;
  for (const int64_t address : weights) {
    const Block* block = block_at(address);
    writes.push_back(block ? block->writes.load(std::memory_order_relaxed) : 0);
  }
  return writes;
}

Kept read_kept(const void* maker, const Addresses& weights) {
  auto writes = writes_to(weights);
  const std::lock_guard<std::mutex> lock(shelf().mutex);
  const auto found = shelf().entries.find(place_of(maker, weights));
  if (found == shelf().entries.end() || found->second.writes != writes) return {};
  return {found->second.spaces, std::move(writes)};
}

Kept look_up_kept(const void* maker, const Addresses& weights) {
  std::shared_ptr<const Spaces> freed;
  auto writes = writes_to(weights);
  const std::lock_guard<std::mutex> lock(shelf().mutex);
  auto& entries = shelf().entries;
  auto place = place_of(maker, weights);
  const auto found = entries.find(place);
  if (found != entries.end() && found->second.writes == writes)
    return {found->second.spaces, std::move(writes)};
  if (found == entries.end() && entries.size() >= kMostEntries) {
    for (auto each = entries.begin(); each != entries.end();)
      each = each->second.spaces ? std::next(each) : entries.erase(each);
    if (entries.size() >= kMostEntries) return {};
  }
  Entry& entry = entries[std::move(place)];
  freed = emptied(entry);
  entry.writes = std::move(writes);
  return {};
}

bool has_room_to_keep(c10::DeviceIndex device, size_t bytes) {
  const size_t most = device_at(device).total_bytes / kShare;
  const std::lock_guard<std::mutex> lock(shelf().mutex);
  return shelf().bytes[size_t(device)] + bytes <= most;
}

void keep(const void* maker, const Addresses& weights, const Counts& writes, Spaces spaces,
          size_t bytes) {
  const Block* first = nullptr;
  for (const int64_t address : weights) {
    first = first ? first : block_at(address);
    // a held launch may run after its weights were freed: no later call can have them
    if (is_dropped(reinterpret_cast<const void*>(address))) return;
  }
  if (!first) return;
  const size_t most = device_at(first->device).total_bytes / kShare;
  const std::lock_guard<std::mutex> lock(shelf().mutex);
  const auto at = shelf().entries.find(place_of(maker, weights));
  if (at == shelf().entries.end() || at->second.spaces) return;
  size_t& kept = shelf().bytes[size_t(first->device)];
  // another thread may have written meanwhile, and looked up what it wrote
  if (at->second.writes != writes || writes_to(weights) != writes || kept + bytes > most) return;
  kept += bytes;
  at->second.device = first->device;
  at->second.bytes = bytes;
  at->second.spaces = std::make_shared<const Spaces>(std::move(spaces));
  for (const int64_t address : weights)
    if (Block* block = block_at(address)) block->is_kept_of.store(true, std::memory_order_relaxed);
}

void forget_kept_by(const void* maker) {
  forget_if([&](const Place& place, const Entry&) { return place.first == maker; });
}

void forget_kept_of(const Block& block) {
  forget_if([&](const Place& place, const Entry&) {
    return std::any_of(place.second.begin(), place.second.end(),
                       [&](int64_t address) { return block_at(address) == &block; });
  });
}

void forget_kept_on(c10::DeviceIndex device) {
  forget_if(
      [&](const Place&, const Entry& entry) { return entry.device == device && entry.spaces; });
}

}  // namespace ocl

extern "C" {

void ocl_keep_weights(int on) {
  ocl::is_on = on != 0;
  if (!on) ocl::forget_if([](const auto&, const auto&) { return true; });
}

// Bytes of a device that hold what was made of weights.
size_t ocl_kept_bytes(int device) {
  const std::lock_guard<std::mutex> lock(ocl::shelf().mutex);
  return ocl::shelf().bytes.at(size_t(device));
}
}
