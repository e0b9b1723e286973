// `torch.accelerator.Graph`, which torch has from 2.13 on, on the graphs of this device.
#if __has_include(<ATen/core/GraphImplInterface.h>)

#include <ATen/core/GraphImplInterface.h>

#include <fstream>

#include "runtime/graph.h"

extern "C" uint64_t ocl_graph_pool_new();

namespace ocl {

namespace {

class AcceleratorGraph final : public at::GraphImplInterface {
 public:
  explicit AcceleratorGraph(const at::GraphImplArgs& /*args*/) {}
  ~AcceleratorGraph() override { forget(); }
  AcceleratorGraph(const AcceleratorGraph&) = delete;
  AcceleratorGraph& operator=(const AcceleratorGraph&) = delete;

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode /*mode*/) override {
    TORCH_CHECK(!graph_, "this graph has been captured. Call reset() before another capture");
    pool_ = pool.first ? pool.first : ocl_graph_pool_new();
    auto graph = std::make_shared<Graph>(current_device(), pool_);
    begin_capture(graph);
    graph_ = std::move(graph);
  }
  void capture_end() override {
    TORCH_CHECK(graph_ && graph_->is_open, "no capture of this graph is open");
    try {
      end_capture(graph_, false);
    } catch (...) {
      forget();
      throw;
    }
  }
  void instantiate() override {}
  void replay() override {
    TORCH_CHECK(graph_ && !graph_->is_open, "this graph has no commands. Capture it first");
    if (const int status = graph_->replay()) raise(status);
  }
  void reset() override { forget(); }
  at::MempoolId_t pool() const override { return {pool_, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string& path) override {
    std::ofstream(path) << (graph_ ? graph_->listing() : "");
  }

 private:
  void forget() {
    if (!graph_) return;
    if (graph_->is_open) end_capture(graph_, true);
    await_submission(graph_->device);
    graph_.reset();
  }

  std::shared_ptr<Graph> graph_;
  uint64_t pool_ = 0;
};

}  // namespace

}  // namespace ocl

namespace at {

// the name that the device has with torch, in its upper case
REGISTER_GRAPH_IMPL(OCL, ocl::AcceleratorGraph)

}  // namespace at

#endif
