// The weight matrices of a recurrence, which stay the same over all steps.
#pragma once

#include "tiles.h"

namespace mann {

// A matrix (depth × columns), packed at the precision of its products: in panels, or as words for the tiles.
class Weights {
 public:
  Weights(int64_t depth, int64_t columns, const float* from, int64_t row, int64_t column, bool bfloat16 = false)
      : bfloat16_(bfloat16), tiled_(bfloat16 && has_tiles()), depth_(depth),
        columns_(round_up(columns, tiled_ ? kTile : kLanes)), panels_(deep() * columns_, tiled_) {
    if (tiled_)
      pack_words(depth, columns, from, row, column, panels_, columns_);
    else if (bfloat16_)
      pack_panels<Bfloat16>(depth, columns, from, row, column, panels_);
    else
      pack_panels<Float32>(depth, columns, from, row, column, panels_);
  }

  int64_t columns() const { return columns_; }  // with padding
  int64_t deep() const {
    if (tiled_) return round_up(words<Bfloat16>(depth_), kTile);
    return bfloat16_ ? words<Bfloat16>(depth_) : depth_;
  }

  // C (rows × columns) = A (rows × depth) B. For bfloat16, `scratch` has room for rows × deep() words.
  void apply(int64_t rows, const float* a, int64_t a_row, float* c, int64_t c_row,
             float* scratch = nullptr) const {
    if (!bfloat16_) return apply<Float32>(rows, a, a_row, c, c_row);
    pack_rows<Bfloat16>(rows, depth_, a, a_row, scratch, deep());
    if (!tiled_) return apply<Bfloat16>(rows, scratch, deep(), c, c_row);
    const Pair whole{0, 0};
    multiply_in_tiles(rows, 1, &whole, deep(), columns_, scratch, 0, deep(), panels_, 0, columns_, c, c_row, false);
  }

 private:
  template <class Precision>
  void apply(int64_t rows, const float* a, int64_t a_row, float* c, int64_t c_row) const {
    for (int64_t j = 0; j < columns_; j += kPanel) {
      const int64_t width = std::min<int64_t>(columns_ - j, kPanel);
      multiply<Precision>(rows, deep(), width, a, a_row, 1, panels_ + j * deep(), width, c + j, c_row, false);
    }
  }

  bool bfloat16_, tiled_;
  int64_t depth_, columns_;
  Buffer panels_;
};

}  // namespace mann
