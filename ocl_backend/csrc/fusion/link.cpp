#include "fusion/link.h"

#include <map>
#include <mutex>

namespace ocl {

namespace {

// A link's way as Python and keys have it; of loose ones: whether the result was dropped.
int64_t way_of(const Link& link, bool loosely) {
  if (!loosely) return int64_t(link.way);
  return link.dropped ? -2 : -1;
}

}  // namespace

const Ways& ways_of(uint32_t count, const uint32_t* places, bool may_be_loose) {
  Ways ways;
  const uint32_t* const begin = places;
  for (uint32_t i = 0; i < count; ++i) {
    auto& way = ways.own.emplace_back();
    way.source = *places++;
    for (auto* list : {&way.reads, &way.writes}) {
      const uint32_t length = *places++;
      list->assign(places, places + length);
      places += length;
    }
  }
  if (may_be_loose) {
    ways.loose = std::move(ways.own.back());
    ways.own.pop_back();
  }
  static std::mutex mutex;
  static auto* all = new std::map<std::pair<bool, std::vector<uint32_t>>, Ways>();
  const std::lock_guard<std::mutex> lock(mutex);
  return all->try_emplace({may_be_loose, {begin, places}}, std::move(ways)).first->second;
}

std::vector<int64_t> described(const Link* first, const Link* end, bool loosely) {
  std::vector<int64_t> words;
  for (const Link* link = first; link != end; ++link) {
    words.insert(words.end(),
                 {int64_t(link->values.size()), link->call->number, way_of(*link, loosely)});
    words.insert(words.end(), link->values.begin(), link->values.end());
  }
  return words;
}

std::optional<Key> key_of(const Link* first, const Link* end, bool loosely) {
  Key key;
  c10::SmallVector<size_t, 128> firsts;  // by the use of a block: its first operand, plus one
  const auto add_operand = [&](int64_t address) {
    const Block* block = locate(reinterpret_cast<const void*>(address)).block;
    if (!block || block->use < 0) return void(key.add_operand(address));
    const auto use = size_t(block->use);
    if (firsts.size() <= use) firsts.resize(2 * use + 1);
    if (!firsts[use]) firsts[use] = key.operands.size() + 1;
    key.add_operand(address, firsts[use] - 1);
  };
  for (const Link* link = first; link != end; ++link) {
    if (link->call->is_asked) return {};
    key.add({link->call->number, int64_t(link->values.size()), way_of(*link, loosely)});
    for (size_t i = 0; i < link->values.size(); ++i) {
      if (link->call->is_address[i]) add_operand(link->values[i]);
      else key.add({link->values[i]});
    }
  }
  return key;
}

}  // namespace ocl
