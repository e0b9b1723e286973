// The trees of the model that ranks variants (oclgen.predictor.forest), walked for a few rows at
// once: the candidates for one problem are alike, so most of them take the same way through a tree.
#include <c10/util/llvmMathExtras.h>

#include <cstdint>
#include <vector>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define OCL_HAS_SSE2
#endif

namespace ocl {

namespace {

constexpr int64_t kLanes = 32;  // rows that are walked at once: bits of a mask
constexpr uint32_t kHalf = kLanes / 2;

// As numpy writes it (`Forest._packed`). Children are this many nodes behind; a leaf has none.
struct Node {
  float value;  // what a leaf adds, or the bound up to which a row goes left
  uint16_t column;
  uint8_t left, right;
};
static_assert(sizeof(Node) == 8);

struct Visit {
  const Node* node;
  uint32_t rows;
};

#ifdef OCL_HAS_SSE2
// The bits of those of 16 numbers that are no greater than `bound`.
uint32_t half_up_to(const float* numbers, __m128 bound) {
  const auto four = [&](int64_t at) {
    return _mm_castps_si128(_mm_cmple_ps(_mm_loadu_ps(numbers + at), bound));
  };
  const __m128i low = _mm_packs_epi32(four(0), four(4)), high = _mm_packs_epi32(four(8), four(12));
  return uint32_t(_mm_movemask_epi8(_mm_packs_epi16(low, high)));
}

uint32_t up_to(const float* numbers, float bound, bool is_half) {
  const __m128 bounds = _mm_set1_ps(bound);
  const uint32_t first = half_up_to(numbers, bounds);
  return is_half ? first : first | half_up_to(numbers + kHalf, bounds) << kHalf;
}
#else
uint32_t up_to(const float* numbers, float bound, bool is_half) {
  uint32_t found = 0;
  for (int64_t row = 0; row < (is_half ? kHalf : kLanes); ++row) {
    found |= uint32_t(numbers[row] <= bound) << row;
  }
  return found;
}
#endif

// Writes what one tree adds to each of `rows`, `step` numbers apart.
void walk(const Node* root, uint32_t rows, const float* columns, bool is_half, float* out,
          int64_t step) {
  Visit left_behind[UINT8_MAX + 1];  // a tree has no more nodes
  int64_t count = 0;
  for (Visit at{root, rows};;) {
    while (at.node->left != 0) {
      const float* numbers = columns + at.node->column * kLanes;
      const uint32_t to_left = at.rows & up_to(numbers, at.node->value, is_half);
      const Visit left{at.node + at.node->left, to_left};
      const Visit right{at.node + at.node->right, at.rows ^ to_left};
      if (left.rows != 0 && right.rows != 0) left_behind[count++] = right;
      at = left.rows != 0 ? left : right;
    }
    for (uint32_t left = at.rows; left != 0; left &= left - 1) {
      out[int64_t(c10::llvm::countTrailingZeros(left)) * step] = at.node->value;
    }
    if (count == 0) return;
    at = left_behind[--count];
  }
}

}  // namespace

}  // namespace ocl

extern "C" {

// Writes to `out` [count, trees] what each tree adds for each of `rows` [count, columns], of which
// there are up to 32. `roots` are places in `nodes`.
void ocl_walk_forest(const ocl::Node* nodes, const int32_t* roots, int64_t trees, const float* rows,
                     int64_t count, int64_t columns, float* out) {
  std::vector<float> turned(size_t(columns * ocl::kLanes));
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      turned[size_t(column * ocl::kLanes + row)] = rows[row * columns + column];
    }
  }
  const uint32_t every = count < ocl::kLanes ? (uint32_t{1} << uint32_t(count)) - 1 : UINT32_MAX;
  for (int64_t tree = 0; tree < trees; ++tree) {
    ocl::walk(nodes + roots[tree], every, turned.data(), count <= ocl::kHalf, out + tree, trees);
  }
}
}
