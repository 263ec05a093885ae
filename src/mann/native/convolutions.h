// A stack of convolutions over a batch of pictures, forward and backward: encoders.py, `Convolutions`.
//
// Every layer is a 3×3 convolution with zeros beyond the border, in steps of `stride`; then what one picture has in
// all its places and maps is brought to mean 0 and variance 1; then a bias per map, and ReLU. Pictures do not meet, so
// that a thread takes a few of them through all layers while everything about them, and the weights, are in its cache.
//
// Arrays are (places, pictures, maps): what a few pictures have in one place are the rows of a matrix. A place of the
// output is then a sum of products of the places it sees with the weights of each, a place of the gradient of the input
// one of the places that see it, and a gradient of weights one over pairs of places. No zeros of the border are
// multiplied, and no matrix of patches is made but that of the picture itself, whose few channels would make too short
// rows.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "config.h"
#include "parallel.h"
#include "tiles.h"
#include "winograd.h"

namespace mann {

constexpr float kVariance = 1e-5f;  // added to a variance, as in jax.nn.standardize
constexpr int64_t kParts = 8;       // parts of a batch with a weight gradient of their own, on any number of cores
#ifndef MANN_PICTURES  // benchmarks/tried.py compares some
#define MANN_PICTURES 8
#endif
constexpr int64_t kPictures = MANN_PICTURES;  // that a thread takes through the layers at a time; in tiles: kTile
constexpr int64_t kMost = std::max(kPictures, kTile);

// Lists of pairs: two places of a layer, or a place and the number of a neighbour; one list after the other.
struct Pairs {
  std::vector<Pair> pairs;
  std::vector<int64_t> ends;

  void add(int64_t left, int64_t right) { pairs.push_back({left, right}); }
  void end() { ends.push_back(static_cast<int64_t>(pairs.size())); }
  const Pair* begin(int64_t list) const { return pairs.data() + (list ? ends[list - 1] : 0); }
  int64_t count(int64_t list) const { return ends[list] - (list ? ends[list - 1] : 0); }
};

// A layer of places: which see which. It depends on nothing else.
struct Grid {
  int64_t side, stride;  // places per side of the input
  bool apart;            // of a picture with few channels: its patches are the rows, and a place of the output sees one
  int64_t places = (side + stride - 1) / stride;  // per side of the output
  Pairs inputs{};      // of each place of the output: places of the input and their neighbours' numbers
  Pairs outputs{};     // of each place of the input: places of the output and their neighbours' numbers
  Pairs both{};        // of each neighbour: places of the input and of the output
  Pairs seen_alone{};  // `inputs` of the first place, where the input has a border of zeros
  Pairs first{{{0, 0}}, {1}};  // a product of two matrices alone

  // One for each kind, made when it is first asked for: that takes as long as a picture.
  static std::shared_ptr<const Grid> get(int64_t side, int64_t stride, bool apart) {
    static std::mutex mutex;
    static std::map<std::tuple<int64_t, int64_t, bool>, std::shared_ptr<const Grid>> kept;
    const std::lock_guard<std::mutex> lock(mutex);
    auto& grid = kept[{side, stride, apart}];
    if (!grid) {
      auto made = std::make_shared<Grid>(Grid{side, stride, apart});
      made->connect();
      grid = std::move(made);
    }
    return grid;
  }

  void connect() {
    for (int64_t tap = 0; tap < (apart ? 1 : 9); ++tap) seen_alone.add(tap / 3 * (side + 2) + tap % 3, tap);
    seen_alone.end();
    for (int64_t p = 0; p < places * places && apart; ++p) inputs.add(p, 0), inputs.end();
    for (int64_t p = 0; p < places * places && apart; ++p) outputs.add(p, 0), outputs.end();
    for (int64_t p = 0; p < places * places && apart; ++p) both.add(p, p);
    if (apart) return both.end();
    std::vector<Pairs> by_input(side * side), by_tap(9);
    for (int64_t p = 0; p < places * places; ++p, inputs.end())
      for (int64_t tap = 0; tap < 9; ++tap) {
        const int64_t i = input(p, tap);
        if (i < 0) continue;
        inputs.add(i, tap), by_input[i].add(p, tap), by_tap[tap].add(i, p);
      }
    for (const auto& [to, lists] : {std::pair(&outputs, &by_input), std::pair(&both, &by_tap)})
      for (const Pairs& list : *lists) {
        for (const Pair& pair : list.pairs) to->add(pair.left, pair.right);
        to->end();
      }
  }

  // The neighbour of a place of the output; −1 beyond the border.
  int64_t input(int64_t place, int64_t tap) const {
    const int64_t y = place / places * stride + tap / 3 - 1, x = place % places * stride + tap % 3 - 1;
    return y < 0 || y >= side || x < 0 || x >= side ? -1 : y * side + x;
  }
};

struct Convolution {
  int64_t side, from, stride;  // places per side and maps of the input
  int64_t places, maps;        // places per side and maps of the output
  int64_t weights, values;     // where its weights and its normalised values begin
  std::shared_ptr<const Grid> grid;

  bool apart() const { return grid->apart; }
  int64_t taps() const { return apart() ? 1 : 9; }
  int64_t seen() const { return (apart() ? places * places : side * side); }  // places of the input,
  int64_t depth() const { return apart() ? 9 * from : from; }                 // with so many numbers each,
  int64_t width() const { return round_up(depth(), 16); }                     // or padded so many
  int64_t size() const { return places * places * maps; }

  // Whether minimal filtering saves a third of the products, borders considered: its transforms cost something too.
  bool worth_filtering() const {
    const int64_t across = winograd::blocks(places);
    return stride == 1 && !apart() && 3 * winograd::kPoints * across * across < 2 * grid->inputs.ends.back();
  }

  // x (side, side, from) of one picture, with a border of zeros.
  void bordered(const float* x, float* to) const {
    const int64_t row = side * from;
    std::fill_n(to, (side + 2) * (side + 2) * from, 0.0f);
    for (int64_t y = 0; y < side; ++y) std::copy_n(x + y * row, row, to + ((y + 1) * (side + 2) + 1) * from);
  }
};

// The layers of a call: their maps and strides are attributes, the rest follows.
struct Stack {
  std::vector<Convolution> layers;
  int64_t pictures = 0, inputs = 0, weights = 0, biases = 0;
  int64_t values = 0;  // of all layers but the first, whose values are computed again: that is faster than to store them
  bool bfloat16 = false, tiled = false;
  bool filtered = false;  // layers that are worth it by minimal filtering

  std::string read(Attributes& attributes) {
    pictures = attributes.size("pictures"), bfloat16 = attributes.size("bfloat16");
    tiled = bfloat16 && has_tiles();
    const int64_t side = attributes.size("side"), channels = attributes.size("channels");
    const auto maps = attributes.sizes("maps"), strides = attributes.sizes("strides");
    inputs = side * side * channels;
    if (maps.size() != strides.size() || maps.size() == 0 || !side || !channels) return "the sizes contradict one another";
    for (size_t n = 0; n < maps.size(); ++n) {
      if (maps[n] < 1 || maps[n] % 16 || strides[n] < 1) return "maps come in multiples of 16, strides are positive";
      add(n ? layers.back().places : side, n ? layers.back().maps : channels, strides[n], maps[n]);
    }
    return "";
  }

  void add(int64_t side, int64_t from, int64_t stride, int64_t maps) {
    const bool first = layers.empty();
    const auto grid = Grid::get(side, stride, from % 16 > 0);
    layers.push_back({side, from, stride, grid->places, maps, weights, values, grid});
    weights += 9 * from * maps, biases += maps, values += first ? 0 : layers.back().size();
  }

  int64_t outputs() const { return layers.back().size(); }
};

// Σ A B over pairs of blocks: a block of A begins at a + a_step left, one of B at b + b_step right.
template <class Precision, int Rows, int Vecs>
void paired_tile(int64_t count, const Pair* pairs, int64_t depth, const float* a, int64_t a_step, int64_t a_row,
                 int64_t a_col, const float* b, int64_t b_step, int64_t b_row, float* c, int64_t c_row,
                 bool accumulate) {
  Vec sum[Rows][Vecs];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vecs; ++v) sum[r][v] = accumulate ? load(c + r * c_row + v * kLanes) : Vec{};
  for (int64_t n = 0; n < count; ++n) {
    const float *left = a + a_step * pairs[n].left, *right = b + b_step * pairs[n].right;
    for (int64_t k = 0; k < depth; ++k, left += a_col, right += b_row) {
      Vec row[Vecs];
      for (int v = 0; v < Vecs; ++v) row[v] = load(right + v * kLanes);
      for (int r = 0; r < Rows; ++r)
        for (int v = 0; v < Vecs; ++v) sum[r][v] = Precision::add(sum[r][v], left[r * a_row], row[v]);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vecs; ++v) store(c + r * c_row + v * kLanes, sum[r][v]);
}

constexpr int kTileRows = kLanes == 16 ? 8 : 4, kTileVecs = 2;

template <class Precision, int Rows = kTileRows, int Vecs = kTileVecs, class... Rest>
void any_paired_tile(int64_t rows, int64_t vecs, Rest... rest) {
  if constexpr (Rows > 1)
    if (rows < Rows) return any_paired_tile<Precision, Rows - 1, Vecs>(rows, vecs, rest...);
  if constexpr (Vecs > 1)
    if (vecs < Vecs) return any_paired_tile<Precision, Rows, Vecs - 1>(rows, vecs, rest...);
  paired_tile<Precision, Rows, Vecs>(rest...);
}

// The products of one list of pairs (rows × columns).
template <class Precision>
void multiply_pairs(const Pairs& pairs, int64_t list, int64_t rows, int64_t depth, int64_t columns, const float* a,
                    int64_t a_step, int64_t a_row, int64_t a_col, const float* b, int64_t b_step, int64_t b_row,
                    float* c, int64_t c_row, bool accumulate) {
  if constexpr (std::is_same_v<Precision, Tiled>)
    return multiply_in_tiles(rows, pairs.count(list), pairs.begin(list), depth, columns, a, a_step, a_row, b, b_step,
                             b_row, c, c_row, accumulate);
  constexpr int64_t kWide = kTileVecs * kLanes;
  for (int64_t j = 0; j < columns; j += kWide)
    for (int64_t i = 0; i < rows; i += kTileRows)
      any_paired_tile<Precision>(std::min<int64_t>(rows - i, kTileRows),
                                 std::min<int64_t>(columns - j, kWide) / kLanes, pairs.count(list), pairs.begin(list),
                                 depth, a + i * a_row, a_step, a_row, a_col, b + j, b_step, b_row, c + i * c_row + j,
                                 c_row, accumulate);
}

// The products of a layer for N pictures, at a precision. What they multiply was packed by `rows` or `columns`.
template <class P>
struct Products {
  static constexpr int64_t D = P::kDepth;

  // (depth × columns) to words: D rows make one.
  static void matrix(int64_t depth, int64_t columns, const float* from, float* to) {
    for (int64_t k = 0; k < depth; k += D, to += columns)
      for (int64_t j = 0; j < columns; j += kLanes)
        store(to + j, P::words(load(from + k * columns + j), load(from + (k + D - 1) * columns + j)));
  }

  // x (places, N, depth): words of numbers that follow one another, for `forward` and `backward_input`.
  static const float* rows(int64_t count, const float* x, float* scratch) {
    if constexpr (D == 1) return x;
    P::row(count, x, scratch);
    return scratch;
  }

  // x (places, N, width): words of two pictures, for `backward_weights`.
  static const float* columns(int64_t places, int64_t N, int64_t width, const float* x, float* scratch) {
    if constexpr (D == 1) return x;
    float* to = scratch;
    for (int64_t p = 0; p < places; ++p, x += N * width)
      for (int64_t n = 0; n < N; n += 2, to += width)
        for (int64_t j = 0; j < width; j += kLanes)
          store(to + j, P::words(load(x + n * width + j), n + 1 < N ? load(x + (n + 1) * width + j) : Vec{}));
    return scratch;
  }

  // The input of `backward_weights`: for tiles (places, depth, N) where these are whole tiles, or half ones.
  static bool turned(int64_t N) { return std::is_same_v<P, Tiled> && N % kTile == 0; }
  static const float* left(int64_t places, int64_t N, int64_t width, const float* x, float* scratch) {
    if (!turned(N)) return columns(places, N, width, x, scratch);
    for (int64_t p = 0; p < places; ++p)
      for (int64_t j = 0; j < width; ++j)
        pack_words(N, 1, x + p * N * width + j, width, 0, scratch + (p * width + j) * (N / 2), 1);
    return scratch;
  }

  static void forward(const Convolution& layer, int64_t N, const float* x, const float* weights, float* z) {
    const int64_t deep = words<P>(layer.depth()), maps = layer.maps;
    for (int64_t p = 0; p < layer.places * layer.places; ++p)
      multiply_pairs<P>(layer.grid->inputs, p, N, deep, maps, x, N * deep, deep, 1, weights, deep * maps, maps,
                        z + p * N * maps, maps, false);
  }

  // One picture, whose rows would be single: those of the product are the places of a line instead. x has a border of
  // zeros (`bordered`), so that all of them see nine neighbours.
  static void forward_one(const Convolution& layer, const float* x, const float* weights, float* z) {
    const int64_t deep = words<P>(layer.depth()), places = layer.places, line = layer.side + 2;
    if (layer.apart())
      return multiply_pairs<P>(layer.grid->seen_alone, 0, places * places, deep, layer.maps, x, 0, deep, 1, weights, 0,
                               layer.maps, z, layer.maps, false);
    for (int64_t y = 0; y < places; ++y)
      multiply_pairs<P>(layer.grid->seen_alone, 0, places, deep, layer.maps, x + y * layer.stride * line * deep, deep,
                        layer.stride * deep, 1, weights, deep * layer.maps, layer.maps, z + y * places * layer.maps,
                        layer.maps, false);
  }

  static void backward_input(const Convolution& layer, int64_t N, const float* d, const float* turned, float* dx) {
    const int64_t deep = words<P>(layer.maps), width = layer.width();
    for (int64_t p = 0; p < layer.seen(); ++p)
      multiply_pairs<P>(layer.grid->outputs, p, N, deep, width, d, N * deep, deep, 1, turned, deep * width, width,
                        dx + p * N * width, width, false);
  }

  static void backward_weights(const Convolution& layer, int64_t N, const float* x, const float* d, float* dweights) {
    using InVectors = std::conditional_t<std::is_same_v<P, Tiled>, Bfloat16, P>;
    const int64_t deep = words<P>(N), depth = layer.depth(), maps = layer.maps;
    for (int64_t tap = 0; tap < layer.taps(); ++tap) {
      float* to = dweights + tap * depth * maps;
      if (turned(N))
        multiply_pairs<P>(layer.grid->both, tap, depth, deep, maps, x, deep * depth, deep, 1, d, deep * maps, maps, to, maps,
                          true);
      else
        multiply_pairs<InVectors>(layer.grid->both, tap, depth, deep, maps, x, deep * depth, 1, depth, d, deep * maps, maps,
                                  to, maps, true);
    }
  }
};

using Kernels = std::vector<const float*>;  // of each layer (9 · from, maps), or as the products take them

class Convolutions {
 public:
  explicit Convolutions(const Stack& stack) : stack_(stack) {
    for (const auto& layer : stack.layers) {
      largest_ = std::max({largest_, layer.size(), layer.seen() * layer.width()});
      turned_.push_back(turned_weights_);
      turned_weights_ += layer.taps() * layer.width() * layer.maps;
    }
    const Convolution& first = stack.layers[0];
    for (int64_t p = 0; p < first.seen(); ++p)
      for (int64_t tap = 0; tap < (first.apart() ? 9 : 1); ++tap)
        neighbours_.push_back(first.apart() ? first.grid->input(p, tap) : p);
  }

  int64_t turned_weights() const { return turned_weights_; }

  // Where the weights of each layer are, if they follow one another.
  Kernels split(const float* weights) const {
    Kernels parts;
    for (const auto& layer : stack_.layers) parts.push_back(weights + layer.weights);
    return parts;
  }

  // All weights, and those of each neighbour with their axes exchanged, as the products take them.
  void pack(const Kernels& weights, float* to) const {
    for (size_t n = 0; n < stack_.layers.size(); ++n) {
      const Convolution& layer = stack_.layers[n];
      products(layer, [&](auto kind) { kind.matrix(9 * layer.from, layer.maps, weights[n], to + layer.weights); });
    }
  }
  void pack_turned(const Kernels& weights, float* to) const {
    Buffer turned(turned_weights_);
    for (size_t n = 0; n < stack_.layers.size(); ++n) {
      const Convolution& layer = stack_.layers[n];
      const float* from = weights[n];
      const int64_t width = layer.width();
      for (int64_t tap = 0; tap < layer.taps(); ++tap)
        for (int64_t f = 0; f < layer.depth(); ++f)
          for (int64_t m = 0; m < layer.maps; ++m)
            turned[(tap * layer.maps + m) * width + f] = from[(tap * layer.depth() + f) * layer.maps + m];
      products(layer, [&](auto kind) { kind.matrix(layer.taps() * layer.maps, width, turned, to + turned_[n]); });
    }
  }

  // The weights as `forward` takes them; `to` has room for so many numbers.
  int64_t prepared_weights() const {
    int64_t count = 0;
    for (const auto& layer : stack_.layers)
      count += (filters(layer) ? winograd::kPoints : 9 * stack_.bfloat16) * layer.from * layer.maps;
    return count;
  }
  Kernels prepare(const Kernels& weights, float* to) const {
    if (stack_.bfloat16) return pack(weights, to), split(to);
    Kernels ready = weights;
    for (size_t n = 0; n < stack_.layers.size(); ++n) {
      const Convolution& layer = stack_.layers[n];
      if (!filters(layer)) continue;
      winograd::prepare_weights(layer.from, layer.maps, weights[n], to);
      ready[n] = to;
      to += winograd::kPoints * layer.from * layer.maps;
    }
    return ready;
  }

  // N pictures. values: the normalised values of all layers but the first, for each layer (places, N, maps);
  // moments: mean and 1 / standard deviation of each layer for each picture.
  void forward(int64_t N, const float* pictures, const Kernels& packed, const float* biases, float* values,
               float* moments, float* outputs) const {
    Buffer z(N * largest_, false), inner(N * largest_, false), scratch(N * largest_, false);
    spread(N, pictures, inner);
    for (size_t n = 0; n < stack_.layers.size(); ++n) {
      const Convolution& layer = stack_.layers[n];
      float *to = n ? values + N * layer.values : static_cast<float*>(z), *moment = moments + 2 * N * n;
      multiply(layer, N, inner, packed[n], to, scratch);
      measure(layer, N, to, moment);
      normalise(layer, N, moment, biases, to, inner);
      biases += layer.maps;
    }
    const Convolution& last = stack_.layers.back();
    for (int64_t p = 0; p < last.places * last.places; ++p)
      for (int64_t n = 0; n < N; ++n)
        std::copy_n(inner + (p * N + n) * last.maps, last.maps, outputs + n * last.size() + p * last.maps);
  }

  // Adds to dweights and dbiases; dpictures may be null.
  void backward(int64_t N, const float* pictures, const Kernels& packed, const float* turned, const float* biases,
                const float* values, const float* moments, const float* doutputs, float* dweights, float* dbiases,
                float* dpictures) const {
    const Convolution &first = stack_.layers[0], &last = stack_.layers.back();
    Buffer one(N * largest_, false), two(N * largest_, false), three(N * largest_, false);
    Buffer start(N * first.seen() * first.depth(), false), v_first(N * first.size(), false);
    Buffer scratch(N * largest_, false), other(N * largest_, false);
    float *d = one, *dx = two, *inner = three;
    for (int64_t p = 0; p < last.places * last.places; ++p)
      for (int64_t n = 0; n < N; ++n)
        std::copy_n(doutputs + n * last.size() + p * last.maps, last.maps, d + (p * N + n) * last.maps);

    int64_t bias = stack_.biases;
    for (size_t n = stack_.layers.size(); n-- > 0;) {
      const Convolution& layer = stack_.layers[n];
      bias -= layer.maps;
      if (n > 1) {
        const Convolution& before = stack_.layers[n - 1];
        activate(before, N, values + N * before.values, biases + bias - before.maps, inner);
      } else if (n == 1 || stack_.layers.size() == 1) {  // the first layer again
        spread(N, pictures, start);
        multiply(first, N, start, packed[0], v_first, scratch);
        normalise(first, N, moments, biases, v_first, inner);
      }
      const float* v = n ? values + N * layer.values : static_cast<float*>(v_first);
      unnormalise(layer, N, v, biases + bias, moments + 2 * N * n, d, dbiases + bias);
      products(layer, [&](auto kind) {
        const float* x = kind.left(layer.seen(), N, layer.depth(), n ? inner : static_cast<float*>(start), scratch);
        const float* right = kind.columns(layer.places * layer.places, N, layer.maps, d, other);
        kind.backward_weights(layer, N, x, right, dweights + layer.weights);
        if (n == 0 && !dpictures) return;
        kind.backward_input(layer, N, kind.rows(N * layer.size(), d, scratch), turned + turned_[n], dx);
      });
      std::swap(d, dx);
    }
    if (dpictures) gather(N, d, dpictures);
  }

 private:
  // The input of the first layer: pictures, or their patches.
  void spread(int64_t N, const float* pictures, float* to) const {
    const Convolution& layer = stack_.layers[0];
    const int64_t from = layer.from, taps = neighbours_.size() / layer.seen();
    for (int64_t p = 0; p < layer.seen(); ++p) {
      const int64_t* neighbours = neighbours_.data() + p * taps;
      for (int64_t n = 0; n < N; ++n)
        for (int64_t tap = 0; tap < taps; ++tap, to += from) {
          const float* source = pictures + n * stack_.inputs + std::max<int64_t>(neighbours[tap], 0) * from;
          for (int64_t f = 0; f < from; ++f) to[f] = neighbours[tap] < 0 ? 0 : source[f];
        }
    }
  }

  // The other way round, for gradients; rows of `from` are padded.
  void gather(int64_t N, const float* from, float* pictures) const {
    const Convolution& layer = stack_.layers[0];
    const int64_t channels = layer.from, taps = neighbours_.size() / layer.seen();
    std::fill_n(pictures, N * stack_.inputs, 0.0f);
    for (int64_t p = 0; p < layer.seen(); ++p)
      for (int64_t n = 0; n < N; ++n, from += layer.width())
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t i = neighbours_[p * taps + tap];
          for (int64_t f = 0; f < channels && i >= 0; ++f)
            pictures[n * stack_.inputs + i * channels + f] += from[tap * channels + f];
        }
  }

  void multiply(const Convolution& layer, int64_t N, const float* x, const float* packed, float* z,
                float* scratch) const {
    if (filters(layer)) return filter(layer, N, x, packed, z);
    products(layer, [&](auto kind) {
      if (N > 1 || std::is_same_v<decltype(kind), Products<Tiled>>)
        return kind.forward(layer, N, kind.rows(N * layer.seen() * layer.depth(), x, scratch), packed, z);
      if (layer.apart()) return kind.forward_one(layer, x, packed, z);
      const int64_t size = (layer.side + 2) * (layer.side + 2) * layer.from;
      Buffer bordered(size, false), other(size, false);
      layer.bordered(x, bordered);
      kind.forward_one(layer, kind.rows(size, bordered, other), packed, z);
    });
  }

  bool filters(const Convolution& layer) const { return stack_.filtered && layer.worth_filtering(); }

  // `multiply` by minimal filtering, a line of blocks at a time: what it needs stays in the cache.
  static void filter(const Convolution& layer, int64_t N, const float* x, const float* weights, float* z) {
    const int64_t rows = winograd::blocks(layer.places) * N, from = layer.from, maps = layer.maps;
    Buffer seen(winograd::kPoints * rows * from, false), multiplied(winograd::kPoints * rows * maps, false);
    for (int64_t line = 0; line < winograd::blocks(layer.places); ++line) {
      winograd::prepare_line(line, layer.side, N, from, x, seen);
      for (int64_t p = 0; p < winograd::kPoints; ++p)
        multiply_pairs<Float32>(layer.grid->first, 0, rows, from, maps, seen + p * rows * from, 0, from, 1,
                                weights + p * from * maps, 0, maps, multiplied + p * rows * maps, maps, false);
      winograd::finish_line(line, layer.side, N, maps, multiplied, z);
    }
  }

  // Call work(n, m, i) for every vector of an array (places, N, maps), in the order of memory: that of picture n with
  // maps from m on, at i.
  template <class Work>
  static void each(const Convolution& layer, int64_t N, const Work& work) {
    int64_t i = 0;
    for (int64_t p = 0; p < layer.places * layer.places; ++p)
      for (int64_t n = 0; n < N; ++n)
        for (int64_t m = 0; m < layer.maps; m += kLanes, i += kLanes) work(n, m, i);
  }

  static void measure(const Convolution& layer, int64_t N, const float* z, float* moments) {
    const float size = static_cast<float>(layer.size());
    Vec sums[kMost] = {}, squares[kMost] = {};
    each(layer, N, [&](int64_t n, int64_t, int64_t i) { sums[n] += load(z + i); });
    for (int64_t n = 0; n < N; ++n) moments[2 * n] = total(sums[n]) / size;
    each(layer, N, [&](int64_t n, int64_t, int64_t i) {
      const Vec apart = load(z + i) - moments[2 * n];
      squares[n] += apart * apart;
    });
    for (int64_t n = 0; n < N; ++n) moments[2 * n + 1] = 1 / std::sqrt(total(squares[n]) / size + kVariance);
  }

  // Normalised values v in place of z, and max(v + b, 0) in `to`.
  static void normalise(const Convolution& layer, int64_t N, const float* moments, const float* bias, float* z,
                        float* to) {
    each(layer, N, [&](int64_t n, int64_t m, int64_t i) {
      const Vec v = (load(z + i) - moments[2 * n]) * moments[2 * n + 1], sum = v + load(bias + m);
      store(z + i, v);
      store(to + i, sum > 0 ? sum : Vec{});
    });
  }

  static void activate(const Convolution& layer, int64_t N, const float* v, const float* bias, float* to) {
    each(layer, N, [&](int64_t, int64_t m, int64_t i) {
      const Vec sum = load(v + i) + load(bias + m);
      store(to + i, sum > 0 ? sum : Vec{});
    });
  }

  // d: the gradient of a layer's outputs, replaced by that of its products.
  static void unnormalise(const Convolution& layer, int64_t N, const float* v, const float* bias, const float* moments,
                          float* d, float* dbias) {
    const float size = static_cast<float>(layer.size());
    Vec sums[kMost] = {}, alongs[kMost] = {};
    each(layer, N, [&](int64_t n, int64_t m, int64_t i) {
      const Vec value = load(v + i), g = value + load(bias + m) > 0 ? load(d + i) : Vec{};
      store(d + i, g);
      store(dbias + m, load(dbias + m) + g);
      sums[n] += g;
      alongs[n] += g * value;
    });
    float means[kMost], slopes[kMost];
    for (int64_t n = 0; n < N; ++n) {
      const float scale = moments[2 * n + 1];
      means[n] = scale * total(sums[n]) / size, slopes[n] = scale * total(alongs[n]) / size;
    }
    each(layer, N, [&](int64_t n, int64_t, int64_t i) {
      store(d + i, moments[2 * n + 1] * load(d + i) - means[n] - slopes[n] * load(v + i));
    });
  }

  static float total(Vec lanes) {
    float sum = 0;
    for (int l = 0; l < kLanes; ++l) sum += lanes[l];
    return sum;
  }

  // Call with the products of a layer: bfloat16 wants whole vectors of maps on both sides.
  template <class Call>
  void products(const Convolution& layer, const Call& call) const {
    if (stack_.tiled && !layer.apart())
      call(Products<Tiled>{});
    else if (stack_.bfloat16 && !layer.apart())
      call(Products<Bfloat16>{});
    else
      call(Products<Float32>{});
  }

  const Stack& stack_;
  int64_t largest_ = 0, turned_weights_ = 0;
  std::vector<int64_t> turned_;      // where the turned weights of each layer begin
  std::vector<int64_t> neighbours_;  // in the picture, of each place that the first layer sees; −1 beyond the border
};

}  // namespace mann
