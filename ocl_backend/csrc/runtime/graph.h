// Graphs: a step's commands, recorded once and enqueued again by one call, as torch.cuda.CUDAGraph
// does. Recording enqueues nothing.
//
//     begin -> Graph::record for every command of the thread -> end -> Graph::replay, many times
//
// A capture belongs to the thread that began it, and to autograd's threads while they work for it.
// Its memory comes from a pool of its own: commands keep their addresses, so no one else may get
// that memory as long as the graph exists.
#pragma once

#include <c10/core/GeneratorImpl.h>

#include <functional>
#include <set>
#include <utility>

#include "runtime/kept.h"
#include "runtime/submitter.h"

namespace ocl {

class Graph final : public Prepared {
 public:
  Graph(c10::DeviceIndex of, uint64_t from);
  ~Graph() override;

  // Records a command instead of handing it over; returns a `Status`.
  int record(Prepared& command, const Resolved& resolved);
  // Takes `count` counters of a generator at each replay. Returns marks of its seed and of the
  // first of them: a replay puts numbers in the place of words that are marks.
  std::pair<int64_t, int64_t> draw(c10::intrusive_ptr<c10::GeneratorImpl> generator,
                                   uint64_t count);
  // Reads what was made of weights; `make` makes it again if something was written to these.
  void read_kept(const Addresses& weights, Kept kept, std::function<int()> make);
  // Whether its commands write to these addresses' memory, or that is memory of its own.
  bool changes(const Addresses& addresses);
  // Notes why the capture cannot be used; returns a `Status`.
  int refuse(const std::string& reason);
  // Gives every command a kernel of its own. Raises why the capture failed.
  void finish();

  // Enqueues all commands; returns a `Status`. Takes no lock of Python.
  int replay();
  int enqueue(const int64_t* /*words*/) override { return replay(); }
  int submit(const int64_t* resolved) override;

  // One line per command.
  std::string listing() const;

  const c10::DeviceIndex device;
  const uint64_t pool;
  std::atomic<bool> is_open{false};  // commands are being recorded

 private:
  struct Command {
    Handle command;
    c10::SmallVector<int64_t, 24> words;
  };
  // Counters that a replay takes.
  struct Source {
    c10::intrusive_ptr<c10::GeneratorImpl> generator;
    int64_t seed, first;  // marks
    uint64_t count;
  };
  // A word that is the seed of a source (0), or its `offset`th counter (1).
  struct Patch {
    size_t command, word, number;  // of the numbers, which are two for each source
    uint64_t offset;
  };
  struct OfWeights {
    Addresses weights;
    Kept kept;
    std::function<int()> make;
  };

  void note_marks(const c10::SmallVector<int64_t, 24>& words);
  int make_again();
  Resolved numbers() const;

  std::recursive_mutex recording_;  // guards all below until `finish`
  std::vector<Command> commands_;
  std::vector<Source> sources_;
  std::vector<Patch> patches_;
  std::vector<OfWeights> of_weights_;
  std::set<Block*> held_, written_;
  std::string reason_;  // why it cannot be used
  bool may_fault_ = false;
  std::recursive_mutex replaying_;
  size_t next_ = 0;               // where `submit` begins: behind what a failed one enqueued
  bool is_again_ = false;         // whether that lacked memory
  bool was_accepted_ = false;     // by the driver, once
};

// The graph that records what this thread enqueues, null: none.
std::shared_ptr<Graph> graph_here();
// The same if it is one of this device.
std::shared_ptr<Graph> graph_here(c10::DeviceIndex device);
// The pool that this thread's memory of a device comes from; 0: the device's.
uint64_t pool_here(c10::DeviceIndex device);

// While one exists, this thread's commands belong to a graph; null: they are enqueued.
class Within {
 public:
  explicit Within(std::shared_ptr<Graph> graph);
  ~Within();
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  std::shared_ptr<Graph> before_;
  bool was_given_;
};

// Begins to record what this thread enqueues. Raises if it already does.
void begin_capture(const std::shared_ptr<Graph>& graph);
// Ends that. With `abandon` nothing is raised, and the graph is of no use.
void end_capture(const std::shared_ptr<Graph>& graph, bool abandon);

}  // namespace ocl
