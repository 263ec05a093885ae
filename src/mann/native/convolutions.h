// A stack of convolutions over a batch of pictures, forward and backward: encoders.py, `Convolutions`.
//
// Every layer is a 3×3 convolution with zeros beyond the border, in steps of `stride`; then what one picture has in
// all its places and maps is brought to mean 0 and variance 1; then a bias per map, and ReLU. Pictures do not meet, so
// that a thread takes one picture through all layers while everything about it, and the weights, are in its cache.
//
// A layer's input lies in a frame of zeros, so that the three neighbours of a place in one row, with all their maps,
// follow one another in memory: a row of outputs is then three products of overlapping rows with a third of the
// weights each, and no matrix of patches is ever made.
#pragma once

#include <vector>

#include "config.h"
#include "parallel.h"

namespace mann {

constexpr float kVariance = 1e-5f;  // added to a variance, as in jax.nn.standardize
constexpr int64_t kChunks = 8;      // parts of a batch with a weight gradient of their own, on any number of cores
constexpr int kTileRows = kLanes == 16 ? 7 : kLanes == 8 ? 3 : 4, kTileVecs = kLanes == 16 ? 4 : 3;

struct Convolution {
  int64_t side, from, stride;  // places per side and maps of the input
  int64_t places, maps;        // places per side and maps of the output
  int64_t weights, values;     // where its weights and its normalised values begin

  int64_t rows() const { return stride * (places - 1) + 3; }           // of the framed input
  int64_t frame() const { return rows() * from; }                      // numbers in a row of it
  int64_t reach() const { return std::min(side, rows() - 1); }         // places per side that any output sees
  int64_t size() const { return places * places * maps; }
};

// C (+)= Σ_o A_o B_o, of which `tile` (vectors.h) is the case with a single o; the depth in words.
template <class Precision, int Rows, int Vecs>
void deep_tile(int64_t outer, int64_t depth, const float* a, int64_t a_row, int64_t a_col, int64_t a_outer,
               const float* b, int64_t b_row, int64_t b_outer, float* c, int64_t c_row, bool accumulate) {
  Vec sum[Rows][Vecs];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vecs; ++v) sum[r][v] = accumulate ? load(c + r * c_row + v * kLanes) : Vec{};
  for (int64_t o = 0; o < outer; ++o, a += a_outer, b += b_outer) {
    const float *left = a, *right = b;
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

template <class Precision, int Rows = kTileRows, int Vecs = kTileVecs, class... Rest>
void any_deep_tile(int64_t rows, int64_t vecs, Rest... rest) {
  if constexpr (Rows > 1)
    if (rows < Rows) return any_deep_tile<Precision, Rows - 1, Vecs>(rows, vecs, rest...);
  if constexpr (Vecs > 1)
    if (vecs < Vecs) return any_deep_tile<Precision, Rows, Vecs - 1>(rows, vecs, rest...);
  deep_tile<Precision, Rows, Vecs>(rest...);
}

template <class Precision = Float32>
void deep_multiply(int64_t rows, int64_t outer, int64_t depth, int64_t columns, const float* a, int64_t a_row,
                          int64_t a_col, int64_t a_outer, const float* b, int64_t b_row, int64_t b_outer, float* c,
                          int64_t c_row, bool accumulate) {
  constexpr int64_t kWide = kTileVecs * kLanes;
  for (int64_t j = 0; j < columns; j += kWide)
    for (int64_t i = 0; i < rows; i += kTileRows)
      any_deep_tile<Precision>(std::min<int64_t>(rows - i, kTileRows), std::min<int64_t>(columns - j, kWide) / kLanes,
                               outer, depth, a + i * a_row, a_row, a_col, a_outer, b + j, b_row, b_outer,
                               c + i * c_row + j, c_row, accumulate);
}

// The layers of a call: their maps and strides are attributes, the rest follows.
struct Stack {
  std::vector<Convolution> layers;
  int64_t pictures = 0, inputs = 0, weights = 0, biases = 0, values = 0;
  bool bfloat16 = false;

  std::string read(Attributes& attributes) {
    pictures = attributes.size("pictures"), bfloat16 = attributes.size("bfloat16");
    const int64_t side = attributes.size("side"), channels = attributes.size("channels");
    const auto maps = attributes.sizes("maps"), strides = attributes.sizes("strides");
    inputs = side * side * channels;
    if (maps.size() != strides.size() || maps.size() == 0 || !side || !channels) return "the sizes contradict one another";
    for (size_t n = 0; n < maps.size(); ++n) {
      const int64_t s = n ? layers.back().places : side, from = n ? layers.back().maps : channels;
      if (maps[n] < 1 || maps[n] % 16 || strides[n] < 1) return "maps come in multiples of 16, strides are positive";
      const int64_t places = (s + strides[n] - 1) / strides[n];
      layers.push_back({s, from, strides[n], places, maps[n], weights, values});
      weights += 9 * from * maps[n], biases += maps[n], values += layers.back().size();
    }
    return "";
  }
  int64_t outputs() const { return layers.back().size(); }
};

// The framed input of a layer: `inner` are its values without a frame.
inline void put_into_frame(const Convolution& layer, const float* inner, float* framed) {
  std::fill_n(framed, layer.rows() * layer.frame(), 0.0f);
  for (int64_t y = 0; y < layer.reach(); ++y)
    std::copy_n(inner + y * layer.side * layer.from, layer.reach() * layer.from,
                framed + (y + 1) * layer.frame() + layer.from);
}

// The other way round; what no output sees is 0.
inline void take_from_frame(const Convolution& layer, const float* framed, float* inner) {
  std::fill_n(inner, layer.side * layer.side * layer.from, 0.0f);
  for (int64_t y = 0; y < layer.reach(); ++y)
    std::copy_n(framed + (y + 1) * layer.frame() + layer.from, layer.reach() * layer.from,
                inner + y * layer.side * layer.from);
}

// max(v + b, 0) for the normalised values v of a layer.
inline void activate(const Convolution& layer, const float* values, const float* bias, float* to) {
  for (int64_t m = 0; m < layer.maps; m += kLanes) {
    const Vec b = load(bias + m);
    for (int64_t i = m; i < layer.size(); i += layer.maps) {
      const Vec v = load(values + i) + b;
      store(to + i, v > 0 ? v : Vec{});
    }
  }
}

// The products of a layer, for one picture. In single precision: what is packed is the plain weights.
struct SinglePrecision {
  static int64_t scratch(const Convolution&) { return 0; }
  static void pack(const Convolution& layer, const float* weights, float* to) {
    std::copy_n(weights, 9 * layer.from * layer.maps, to);
  }
  static void pack_turned(const Convolution& layer, const float* turned, float* to) {
    std::copy_n(turned, 9 * layer.from * layer.maps, to);
  }

  static void forward(const Convolution& layer, const float* framed, const float* packed, float* z, float*) {
    const int64_t row = 3 * layer.from;
    for (int64_t y = 0; y < layer.places; ++y)
      deep_multiply(layer.places, 3, row, layer.maps, framed + y * layer.stride * layer.frame(),
                    layer.stride * layer.from, 1, layer.frame(), packed, layer.maps, row * layer.maps,
                    z + y * layer.places * layer.maps, layer.maps, false);
  }

  static void backward_weights(const Convolution& layer, const float* framed, const float* d, float* dweights, float*) {
    const int64_t row = 3 * layer.from;
    for (int64_t dy = 0; dy < 3; ++dy)
      deep_multiply(row, layer.places, layer.places, layer.maps, framed + dy * layer.frame(), 1,
                    layer.stride * layer.from, layer.stride * layer.frame(), d, layer.maps, layer.places * layer.maps,
                    dweights + dy * row * layer.maps, layer.maps, true);
  }

  // By each of the nine neighbours, since those of different outputs overlap.
  static void backward_input(const Convolution& layer, const float* packed, const float* d, float* dframed, float*) {
    for (int64_t tap = 0; tap < 9; ++tap)
      for (int64_t y = 0; y < layer.places; ++y) {
        const float *a = d + y * layer.places * layer.maps, *b = packed + tap * layer.maps * layer.from;
        float* c = dframed + (y * layer.stride + tap / 3) * layer.frame() + tap % 3 * layer.from;
        if (layer.from % kLanes == 0) {
          deep_multiply(layer.places, 1, layer.maps, layer.from, a, layer.maps, 1, 0, b, layer.from, 0, c,
                        layer.stride * layer.from, true);
        } else {  // the channels of a picture: one at a time
          for (int64_t x = 0; x < layer.places; ++x)
            for (int64_t f = 0; f < layer.from; ++f)
              for (int64_t m = 0; m < layer.maps; ++m)
                c[x * layer.stride * layer.from + f] += a[x * layer.maps + m] * b[m * layer.from + f];
        }
      }
  }
};

// In bfloat16, for layers whose input has whole vectors of maps. A word holds two maps of the input, two of the
// output, or two places of a row, as the depth of each product asks.
struct HalfPrecision {
  using P = Bfloat16;
  static int64_t pairs(const Convolution& layer) { return (layer.places + 1) / 2; }
  static int64_t scratch(const Convolution& layer) {
    const int64_t ahead = layer.rows() * layer.frame() / 2;
    const int64_t back = layer.rows() * 3 * pairs(layer) * layer.from + layer.places * pairs(layer) * layer.maps;
    return std::max({ahead, back, layer.size() / 2}) + kLanes;
  }

  // (depth × columns) to words: two rows make one.
  static void pack_matrix(int64_t depth, int64_t columns, const float* from, float* to) {
    for (int64_t k = 0; k < depth; k += 2, to += columns)
      for (int64_t j = 0; j < columns; j += kLanes)
        store(to + j, P::words(load(from + k * columns + j), load(from + (k + 1) * columns + j)));
  }
  static void pack(const Convolution& layer, const float* weights, float* to) {
    pack_matrix(9 * layer.from, layer.maps, weights, to);
  }
  static void pack_turned(const Convolution& layer, const float* turned, float* to) {
    pack_matrix(9 * layer.maps, layer.from, turned, to);
  }

  // Numbers that follow one another, two to a word.
  static void pack_line(int64_t count, const float* from, float* to) {
    int64_t i = 0;
#if defined(__AVX512BF16__) && !defined(MANN_PORTABLE)
    for (; i + 32 <= count; i += 32)
      store(to + i / 2, reinterpret_cast<Vec>(_mm512_cvtne2ps_pbh(load(from + i + 16), load(from + i))));
#endif
    for (; i < count; i += 2) to[i / 2] = P::word(from + i, 1, i + 1 == count);
  }

  static void forward(const Convolution& layer, const float* framed, const float* packed, float* z, float* scratch) {
    const int64_t from = layer.from / 2, frame = layer.frame() / 2, row = 3 * from;
    pack_line(layer.rows() * layer.frame(), framed, scratch);
    for (int64_t y = 0; y < layer.places; ++y)
      deep_multiply<P>(layer.places, 3, row, layer.maps, scratch + y * layer.stride * frame, layer.stride * from, 1,
                       frame, packed, layer.maps, row * layer.maps, z + y * layer.places * layer.maps, layer.maps,
                       false);
  }

  static void backward_weights(const Convolution& layer, const float* framed, const float* d, float* dweights,
                               float* scratch) {
    const int64_t n = pairs(layer), from = layer.from, maps = layer.maps, s = layer.stride;
    float *inputs = scratch, *outputs = scratch + layer.rows() * 3 * n * from;
    for (int64_t r = 0; r < layer.rows(); ++r)
      for (int64_t dx = 0; dx < 3; ++dx)
        for (int64_t pair = 0; pair < n; ++pair) {
          const float* first = framed + r * layer.frame() + (2 * pair * s + dx) * from;
          interleave(from, first, 2 * pair + 1 < layer.places ? first + s * from : nullptr,
                     inputs + ((r * 3 + dx) * n + pair) * from);
        }
    for (int64_t y = 0; y < layer.places; ++y)
      for (int64_t pair = 0; pair < n; ++pair) {
        const float* first = d + (y * layer.places + 2 * pair) * maps;
        interleave(maps, first, 2 * pair + 1 < layer.places ? first + maps : nullptr, outputs + (y * n + pair) * maps);
      }
    for (int64_t tap = 0; tap < 9; ++tap)
      deep_multiply<P>(from, layer.places, n, maps, inputs + (tap / 3 * 3 + tap % 3) * n * from, 1, from,
                       s * 3 * n * from, outputs, maps, n * maps, dweights + tap * from * maps, maps, true);
  }

  static void backward_input(const Convolution& layer, const float* packed, const float* d, float* dframed,
                             float* scratch) {
    const int64_t maps = layer.maps / 2;
    pack_line(layer.size(), d, scratch);
    for (int64_t tap = 0; tap < 9; ++tap)
      for (int64_t y = 0; y < layer.places; ++y)
        deep_multiply<P>(layer.places, 1, maps, layer.from, scratch + y * layer.places * maps, maps, 1, 0,
                         packed + tap * maps * layer.from, layer.from, 0,
                         dframed + (y * layer.stride + tap / 3) * layer.frame() + tap % 3 * layer.from,
                         layer.stride * layer.from, true);
  }

 private:
  static void interleave(int64_t count, const float* first, const float* second, float* to) {
    for (int64_t j = 0; j < count; j += kLanes)
      store(to + j, P::words(load(first + j), second ? load(second + j) : Vec{}));
  }
};

class Convolutions {
 public:
  explicit Convolutions(const Stack& stack) : stack_(stack) {
    for (const auto& layer : stack.layers) {
      frame_ = std::max(frame_, layer.rows() * layer.frame());
      largest_ = std::max({largest_, layer.size(), layer.side * layer.side * layer.from});
      products(layer, [&](auto kind) { scratch_ = std::max(scratch_, kind.scratch(layer)); });
    }
  }

  // All weights, and those of each of the nine neighbours with their axes exchanged, as the products take them.
  void pack(const float* weights, float* to) const {
    for (const auto& layer : stack_.layers)
      products(layer, [&](auto kind) { kind.pack(layer, weights + layer.weights, to + layer.weights); });
  }
  void pack_turned(const float* weights, float* to) const {
    Buffer turned(stack_.weights, false);
    for (const auto& layer : stack_.layers) {
      const float* from = weights + layer.weights;
      for (int64_t tap = 0; tap < 9; ++tap)
        for (int64_t f = 0; f < layer.from; ++f)
          for (int64_t m = 0; m < layer.maps; ++m)
            turned[(tap * layer.maps + m) * layer.from + f] = from[(tap * layer.from + f) * layer.maps + m];
      products(layer, [&](auto kind) { kind.pack_turned(layer, turned, to + layer.weights); });
    }
  }

  // values: the normalised values of all layers; scales: 1 / standard deviation of each.
  void forward(const float* picture, const float* packed, const float* biases, float* values, float* scales,
               float* outputs) const {
    Buffer framed(frame_, false), inner(largest_, false), scratch(scratch_, false);
    std::copy_n(picture, stack_.inputs, static_cast<float*>(inner));
    for (size_t n = 0; n < stack_.layers.size(); ++n) {
      const Convolution& layer = stack_.layers[n];
      put_into_frame(layer, inner, framed);
      float* z = values + layer.values;
      products(layer, [&](auto kind) { kind.forward(layer, framed, packed + layer.weights, z, scratch); });
      scales[n] = normalise(layer.size(), z);
      const bool last = n + 1 == stack_.layers.size();
      activate(layer, z, biases, last ? outputs : static_cast<float*>(inner));
      biases += layer.maps;
    }
  }

  // Adds to dweights and dbiases; dpicture may be null.
  void backward(const float* picture, const float* turned, const float* biases, const float* values,
                const float* scales, const float* doutputs, float* dweights, float* dbiases, float* dpicture) const {
    Buffer framed(frame_, false), dframed(frame_, false), inner(largest_, false), d(largest_, false);
    Buffer scratch(scratch_, false);
    std::copy_n(doutputs, stack_.outputs(), static_cast<float*>(d));
    int64_t bias = stack_.biases;
    for (size_t n = stack_.layers.size(); n-- > 0;) {
      const Convolution& layer = stack_.layers[n];
      bias -= layer.maps;
      unnormalise(layer, values + layer.values, biases + bias, scales[n], d, dbiases + bias);
      const float* input = picture;
      if (n) {
        const Convolution& before = stack_.layers[n - 1];
        activate(before, values + before.values, biases + bias - before.maps, inner);
        input = inner;
      }
      put_into_frame(layer, input, framed);
      products(layer, [&](auto kind) {
        kind.backward_weights(layer, framed, d, dweights + layer.weights, scratch);
        if (n == 0 && !dpicture) return;
        std::fill_n(static_cast<float*>(dframed), layer.rows() * layer.frame(), 0.0f);
        kind.backward_input(layer, turned + layer.weights, d, dframed, scratch);
      });
      if (n == 0 && !dpicture) return;
      take_from_frame(layer, dframed, n ? static_cast<float*>(d) : dpicture);
    }
  }

 private:
  static float normalise(int64_t size, float* z) {
    float sum = 0, square = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < size; ++i) sum += z[i];
    const float mean = sum / static_cast<float>(size);
#pragma omp simd reduction(+ : square)
    for (int64_t i = 0; i < size; ++i) square += (z[i] - mean) * (z[i] - mean);
    const float scale = 1 / std::sqrt(square / static_cast<float>(size) + kVariance);
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) z[i] = (z[i] - mean) * scale;
    return scale;
  }

  // d: the gradient of a layer's outputs, replaced by that of its products. Vectors by hand: the compiler does not
  // see that the arrays are apart.
  static void unnormalise(const Convolution& layer, const float* v, const float* bias, float scale, float* d,
                          float* dbias) {
    const int64_t size = layer.size(), maps = layer.maps;
    Vec sums{}, alongs{};
    for (int64_t m = 0; m < maps; m += kLanes) {
      const Vec b = load(bias + m);
      Vec db{};
      for (int64_t i = m; i < size; i += maps) {
        const Vec value = load(v + i), g = value + b > 0 ? load(d + i) : Vec{};
        store(d + i, g);
        db += g;
        alongs += g * value;
      }
      sums += db;
      store(dbias + m, load(dbias + m) + db);
    }
    float sum = 0, along = 0;
    for (int l = 0; l < kLanes; ++l) sum += sums[l], along += alongs[l];
    const float mean = scale * sum / static_cast<float>(size), slope = scale * along / static_cast<float>(size);
    for (int64_t i = 0; i < size; i += kLanes) store(d + i, scale * load(d + i) - mean - slope * load(v + i));
  }

  // Call with the products of a layer: bfloat16 wants whole vectors of maps on both sides.
  template <class Call>
  void products(const Convolution& layer, const Call& call) const {
    if (stack_.bfloat16 && layer.from % 16 == 0)
      call(HalfPrecision{});
    else
      call(SinglePrecision{});
  }

  const Stack& stack_;
  int64_t frame_ = 0, largest_ = 0, scratch_ = 0;
};

}  // namespace mann
