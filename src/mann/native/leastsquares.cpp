// One step of a network that is a memory by recursive least squares alone (memory/leastsquares.py), on arrays of the
// host: what a learner of functions does with every sample takes less time than XLA needs to be called. A library of
// its own without XLA's headers, so that whoever learns functions waits seconds for the compiler.
#include "vectors.h"

namespace mann {
namespace {

struct Sizes {
  int64_t heads, frequencies, features, hidden, outputs;
};

// In the order of `LeastSquares.host_kernel`; the output layer's come last.
struct Weights {
  const float *waves;       // features × heads × frequencies
  const float *amplitudes;  // heads × frequencies
  const float *noise, *shape, *rate, *prior, *preference;  // heads each; prior: of the evidence, before any sample
  const float *numbers;     // how much evidence counts, the smallest scale
  const float *hidden, *hidden_bias, *mend, *mend_bias, *readout, *readout_bias;
};

struct In {
  const float *x, *value;
  const float *estimate, *covariance, *squares, *logarithms, *samples, *pending, *reach, *gain;
};

struct Out {
  float *outputs, *reads;
  float *estimate, *covariance, *squares, *logarithms, *samples, *pending, *reach, *gain;
};

struct Arrays {
  In in;
  Out out;
};

// φ(x): amplitude · cos and · sin of every angle. Waves are short and x may be far away: the angle is reduced in double
// precision, then both functions are the polynomials of Cephes on [−π/4, π/4].
void embed(const Sizes& sizes, const Weights& weights, const float* x, float* keys) {
  const int64_t count = sizes.heads * sizes.frequencies, slots = 2 * sizes.frequencies;
  constexpr double kTurn = 6755399441055744.0;  // 1.5 · 2^52: the low bits of a sum with it hold the quarter turns
  constexpr double kFarthest = 1 << 30;         // beyond, neighbours in single precision are many waves apart
  Buffer angles(count), cosines(count, false), sines(count, false);
  for (int64_t d = 0; d < sizes.features; ++d)
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) angles[i] += x[d] * weights.waves[d * count + i];
  float *angle = angles, *cosine = cosines, *sine = sines;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    double far = angle[i];
    far = far < -kFarthest ? -kFarthest : far;
    far = far > kFarthest ? kFarthest : far;
    const double shifted = far * 0.6366197723675814 + kTurn;
    const float r = static_cast<float>(far - (shifted - kTurn) * 1.5707963267948966), y = r * r;
    const uint32_t quarter = static_cast<uint32_t>(__builtin_bit_cast(uint64_t, shifted));
    const float c = ((2.443315711809948e-5f * y - 1.388731625493765e-3f) * y + 4.166664568298827e-2f) * y * y -
                    0.5f * y + 1.0f;
    const float s = ((-1.9515295891e-4f * y + 8.3321608736e-3f) * y - 1.6666654611e-1f) * y * r + r;
    const float along = quarter & 1 ? s : c, across = quarter & 1 ? c : s;
    cosine[i] = weights.amplitudes[i] * ((quarter + 1) & 2 ? -along : along);
    sine[i] = weights.amplitudes[i] * (quarter & 2 ? -across : across);
  }
  for (int64_t h = 0; h < sizes.heads; ++h) {
    std::copy_n(cosine + h * sizes.frequencies, sizes.frequencies, keys + h * slots);
    std::copy_n(sine + h * sizes.frequencies, sizes.frequencies, keys + h * slots + sizes.frequencies);
  }
}

// Some rows of the covariance after a write, and what they add to P φ, for which its rows are its columns.
template <int Rows>
void write(int64_t slots, const float* __restrict from, const float* __restrict gain, const float* __restrict reach,
           const float* __restrict now, float* __restrict to, float* __restrict sum) {
#pragma omp simd
  for (int64_t j = 0; j < slots; ++j) {
    float total = sum[j];
    for (int r = 0; r < Rows; ++r) {
      const float number = from[r * slots + j] - gain[r] * reach[j];
      to[r * slots + j] = number;
      total += now[r] * number;
    }
    sum[j] = total;
  }
}

// log Γ of a positive number: Stirling's series eight places further on. The standard one is not safe in threads.
double log_gamma(double x) {
  double product = 1;
  for (int i = 0; i < 8; ++i) product *= x + i;
  const double z = x + 8, inverse = 1 / z, square = inverse * inverse;
  const double series = (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square / 1680))) * inverse;
  return (z - 0.5) * std::log(z) - z + 0.9189385332046727 + series - std::log(product);
}

// What the heads say of the value at x before it arrives, if the function had variance 1.
struct Foretold {
  const float *mean, *variance;  // noise included
  const float *squares, *logarithms;
  float samples;
};

// `LeastSquares.blend`: mean and standard deviation.
std::pair<float, float> blend(const Sizes& sizes, const Weights& weights, const Foretold& said) {
  const int64_t heads = sizes.heads;
  Buffer inputs(3 * heads + 4, false), variances(heads, false), units(sizes.hidden, false);
  float *belief = inputs, *errors = inputs + heads, *sizes_of = inputs + 2 * heads, *summary = inputs + 3 * heads;
  for (int64_t h = 0; h < heads; ++h) {
    const double shape = weights.shape[h] + 0.5 * said.samples, rate = weights.rate[h] + 0.5 * said.squares[h];
    const double evidence = weights.prior[h] - shape * std::log(rate) + log_gamma(shape) - said.logarithms[h];
    belief[h] = static_cast<float>(weights.numbers[0] * evidence + weights.preference[h]);
    variances[h] = static_cast<float>(rate / shape) * said.variance[h];
  }
  const float most = *std::max_element(belief, belief + heads);
  float total = 0, mean = 0, within = 0, apart = 0, doubt = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t h = 0; h < heads; ++h) total += belief[h] = fast_exp(belief[h] - most);
#pragma omp simd reduction(+ : mean, within)
  for (int64_t h = 0; h < heads; ++h) {
    belief[h] /= total;
    mean += belief[h] * said.mean[h];
    within += belief[h] * variances[h];
  }
#pragma omp simd reduction(+ : apart, doubt)
  for (int64_t h = 0; h < heads; ++h) {
    errors[h] = said.mean[h] - mean;
    apart += belief[h] * errors[h] * errors[h];
    doubt -= belief[h] * fast_log(belief[h] + 1e-9f);
  }
  const float variance = within + apart, scale = std::sqrt(variance);
#pragma omp simd
  for (int64_t h = 0; h < heads; ++h) {
    errors[h] *= belief[h] / scale;
    sizes_of[h] = belief[h] * fast_log(variances[h] / variance);
  }
  summary[0] = std::log(scale), summary[1] = doubt;
  summary[2] = std::log1p(said.samples), summary[3] = within / variance;

  std::copy_n(weights.hidden_bias, sizes.hidden, static_cast<float*>(units));
  for (int64_t i = 0; i < 3 * heads + 4; ++i)
#pragma omp simd
    for (int64_t u = 0; u < sizes.hidden; ++u) units[u] += inputs[i] * weights.hidden[i * sizes.hidden + u];
  float shift = weights.mend_bias[0], stretch = weights.mend_bias[1];
  for (int64_t u = 0; u < sizes.hidden; ++u) {
    const float unit = fast_tanh(units[u]);
    shift += unit * weights.mend[2 * u], stretch += unit * weights.mend[2 * u + 1];
  }
  return {mean + scale * shift, scale * std::exp(stretch)};
}

void step(const Sizes& sizes, const Weights& weights, const In& in, const Out& out) {
  const int64_t heads = sizes.heads, slots = 2 * sizes.frequencies;
  Buffer means(heads, false), variances(heads, false);
  embed(sizes, weights, in.x, out.pending);
  // At the start no key waits for its value: all of its features are zero, and so is what it changes.
  const bool waits = std::any_of(in.pending, in.pending + slots, [](float feature) { return feature != 0; });
  for (int64_t h = 0; h < heads; ++h) {
    const float *key = in.pending + h * slots, *reach = in.reach + h * slots, *estimate = in.estimate + h * slots;
    const float *now = out.pending + h * slots, *from = in.covariance + h * slots * slots;
    float *gain = out.gain + h * slots, *changed = out.estimate + h * slots, *sum = out.reach + h * slots;
    float* to = out.covariance + h * slots * slots;
    const float variance = std::max(dot(slots, key, reach), 0.0f) + weights.noise[h];
    const float error = *in.value - dot(slots, key, estimate);
#pragma omp simd
    for (int64_t j = 0; j < slots; ++j) {
      gain[j] = reach[j] / variance;
      changed[j] = estimate[j] + gain[j] * error;
      sum[j] = 0;
    }
    int64_t row = 0;
    for (; row + 4 <= slots; row += 4)
      write<4>(slots, from + row * slots, gain + row, reach, now + row, to + row * slots, sum);
    for (; row < slots; ++row)
      write<1>(slots, from + row * slots, gain + row, reach, now + row, to + row * slots, sum);
    out.squares[h] = in.squares[h] + (waits ? error * error / variance : 0.0f);
    out.logarithms[h] = in.logarithms[h] + (waits ? 0.5f * fast_log(variance) : 0.0f);
    means[h] = dot(slots, now, changed);
    variances[h] = std::max(dot(slots, now, sum), 0.0f) + weights.noise[h];
  }
  *out.samples = *in.samples + (waits ? 1.0f : 0.0f);

  const auto [mean, scale] =
      blend(sizes, weights, {means, variances, out.squares, out.logarithms, *out.samples});
  const float above = std::max(scale - weights.numbers[1], 1e-6f);  // `Gaussian.from_mean_and_scale`
  out.reads[0] = mean, out.reads[1] = above + std::log(-std::expm1(-above));
  for (int64_t o = 0; o < sizes.outputs; ++o)
    out.outputs[o] = weights.readout_bias[o] + out.reads[0] * weights.readout[o] +
                     out.reads[1] * weights.readout[sizes.outputs + o];
  out.outputs[sizes.outputs] = -1;  // how familiar x is: this memory cannot say
}

}  // namespace
}  // namespace mann

// All are without gaps, and none that is written is one that is read.
extern "C" void mann_leastsquares_step(const mann::Sizes* sizes, const mann::Weights* weights,
                                       const mann::Arrays* arrays) {
  mann::step(*sizes, *weights, arrays->in, arrays->out);
}
