// The recurrent part of a network over whole episodes, forward and backward.
//
// Equation numbers are those of Santoro et al. (2016). Sizes: B episodes, T steps, H controller units, M slots,
// W slot width, R heads; X = H + R·W is the length of o_t = (h_t, r_t), P that of the heads' parameters, G that
// of the controller's pre-activations. M' and W' are padded with zeros (M_ and W_ in the code).
//
// A thread takes a block of episodes through all the steps. A step is two products of the block's rows with
// weights that stay in the L2 cache, then each episode's memory operations. An episode's memory is held
// transposed, (W', M'), with slots along the vector lanes, and stays in the cache too. Weight gradients are
// left to the caller: each is one large product of the pre-activations' gradients, which are returned here.
//
// A controller (controllers.h) and a memory (lrua.h, ntm.h) make a network. Sparse access (sparse.h) goes through the
// steps in its own way.

#include <vector>

#include "controllers.h"
#include "convolutions.h"
#include "lrua.h"
#include "newton_schulz.h"
#include "ntm.h"
#include "parallel.h"
#include "sparse.h"
#include "weights.h"
#include "xla/ffi/api/ffi.h"

namespace mann {
namespace {

namespace ffi = xla::ffi;

// A network without a memory.
struct NoMemory {
  static void options(Attributes&, Config&) {}
  static int64_t parameters(const Config&) { return 0; }
  static int64_t extra(const Config&) { return 0; }
  static int64_t usage(const Config&) { return 0; }
  explicit NoMemory(const Config&) {}
  void forward(const Step&, const float*, float*, float*, float*, float*) {}
  void backward(const Step&, const float*, const float*, float*, float*, const float*, float*, const float*,
                float*, float*) {}
};

void transpose(int64_t rows, int64_t columns, const float* from, int64_t from_row, float* to,
               int64_t to_row) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
}

// --- whole episodes ------------------------------------------------------------------------------------

struct Forward {
  In projected;     // (B, T, G)  W_x (x_t, y_{t−1}) + b
  In recurrent;     // (fed, G)
  In to_heads;      // (H, P)
  In bias;          // (P)
  In start;         // (B, X)     h_0, r_0
  In cell;          // (B, H)     c_0
  In memory;        // (B, M, W)  M_0
  In weights;       // (B, N, M)  w_0
  In usage;         // (B, M)     w^u_0
  Out hidden;       // (B, T, X)  h_t, r_t
  Out last_memory;  // (B, M, W)  M_T
  Out last_write;   // (B, R, M)  w^w_T
  Out last_usage;   // (B, M)     w^u_T
};

template <class Controller, class Memory>
void forward(const Config& c, const Forward& x, const Record& record, const Weights& recurrent,
             const Weights& to_heads, int64_t first, int64_t rows) {
  const int64_t T = c.T, H = c.H, M_ = c.M_(), X = c.X(), P = x.bias.size, NM = c.N * M_, WM = c.W_() * M_;
  const int64_t Z = recurrent.columns(), P_ = to_heads.columns();
  Memory memory_of(c);
  Buffer z(rows * Z), parameters(rows * P_), memory(rows * WM), weights(rows * NM);  // weights: w_0
  Buffer scratch(rows * std::max(recurrent.deep(), to_heads.deep()));
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t b = first + n;
    transpose(c.M, c.W, x.memory[b], c.W, memory + n * WM, M_);
    for (int64_t h = 0; h < c.N; ++h) std::copy_n(x.weights[b] + h * c.M, c.M, weights + n * NM + h * M_);
    std::copy_n(x.usage[b], x.usage.size, x.last_usage[b]);
  }

  for (int64_t t = 0; t < T; ++t) {
    const float* before = t ? x.hidden[first * T + t - 1] : x.start[first];
    recurrent.apply(rows, before + c.fed_from, t ? T * X : X, z, Z, scratch);
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n;
      const float* previous = t ? record.at(c, b, t - 1).cell : x.cell[b];
      Controller::forward(c, z + n * Z, x.projected[b * T + t], previous, record.at(c, b, t),
                          x.hidden[b * T + t]);
    }

    const float* query = c.cell_query ? record.at(c, first, t).cell : x.hidden[first * T + t];
    to_heads.apply(rows, query, c.cell_query ? c.steps * H : T * X, parameters, P_, scratch);
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n;
      const Step step = record.at(c, b, t);
      const float* previous = t ? record.at(c, b, t - 1).weights : weights + n * NM;
      float *M = memory + n * WM, *checkpoint = record.checkpoint(c, b, t);
      if (checkpoint) std::copy_n(M, WM, checkpoint);
      for (int64_t j = 0; j < P; ++j) step.heads[j] = parameters[n * P_ + j] + x.bias.data[j];
      memory_of.forward(step, previous, M, x.last_usage[b], x.hidden[b * T + t] + H,
                        t == T - 1 ? x.last_write[b] : nullptr);
    }
  }
  for (int64_t n = 0; n < rows; ++n)
    transpose(c.W, c.M, memory + n * WM, M_, x.last_memory[first + n], c.W);
}

struct Backward {
  In recurrent, to_heads, cell, weights, hidden, last_memory;  // as in Forward
  In dhidden;   // (B, T, X)
  In dcell;     // (B, H)     of c_T
  In dmemory;   // (B, M, W)  of M_T
  In dweights;  // (B, N, M)  of w_T
  In dwritten;  // (B, R, M)  of w^w_T
  Out dz;       // (B, T, G)  of the controller's pre-activations
  Out dheads;   // (B, T, P)  of the heads' pre-activations
  Out dstart, dstart_cell, dstart_memory, dstart_weights;  // of start, cell, memory, weights in Forward
};

// `from_gates` (G, fed) and `from_heads` (P, H) are the transposed weights.
template <class Controller, class Memory>
void backward(const Config& c, const Backward& x, const Record& record, const Weights& from_gates,
              const Weights& from_heads, int64_t first, int64_t rows) {
  const int64_t T = c.T, H = c.H, M_ = c.M_(), X = c.X(), NM = c.N * M_, WM = c.W_() * M_;
  const int64_t fed_ = from_gates.columns(), H_ = from_heads.columns();
  Memory memory_of(c);
  Buffer memory(rows * WM), dmemory(rows * WM), weights(rows * NM);  // M, its gradient, w_0
  Buffer dweights(rows * NM), dprevious(rows * NM);                 // of w_t, w_{t−1}
  Buffer dfed(rows * fed_), d(rows * X), dquery(rows * H_), dc(rows * H);  // d: of o_t
  Buffer scratch(rows * std::max(from_gates.deep(), from_heads.deep()));
  float *dnow = dweights, *dbefore = dprevious;
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t b = first + n;
    transpose(c.M, c.W, x.last_memory[b], c.W, memory + n * WM, M_);
    transpose(c.M, c.W, x.dmemory[b], c.W, dmemory + n * WM, M_);
    for (int64_t h = 0; h < c.N; ++h) {
      std::copy_n(x.weights[b] + h * c.M, c.M, weights + n * NM + h * M_);
      std::copy_n(x.dweights[b] + h * c.M, c.M, dnow + n * NM + h * M_);
    }
    std::copy_n(x.dcell[b], x.dcell.size, dc + n * H);
  }

  for (int64_t t = T - 1; t >= 0; --t) {
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n;
      float* do_ = d + n * X;
      std::copy_n(x.dhidden[b * T + t], X, do_);
      for (int64_t j = 0; j < c.fed; ++j) do_[c.fed_from + j] += dfed[n * fed_ + j];
      const float* previous = t ? record.at(c, b, t - 1).weights : weights + n * NM;
      memory_of.backward(record.at(c, b, t), previous, record.checkpoint(c, b, t), memory + n * WM,
                         dmemory + n * WM, do_ + H, dnow + n * NM, t == T - 1 ? x.dwritten[b] : nullptr,
                         dbefore + n * NM, x.dheads[b * T + t]);
    }
    std::swap(dnow, dbefore);

    from_heads.apply(rows, x.dheads[first * T + t], T * x.dheads.size, dquery, H_, scratch);
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n;
      const float* previous = t ? record.at(c, b, t - 1).cell : x.cell[b];
      float *dh = d + n * X, *dqueried = c.cell_query ? dc + n * H : dh;
      for (int64_t j = 0; j < H; ++j) dqueried[j] += dquery[n * H_ + j];
      Controller::backward(c, record.at(c, b, t), previous, x.hidden[b * T + t], dh, dc + n * H,
                           x.dz[b * T + t]);
    }
    from_gates.apply(rows, x.dz[first * T + t], T * x.dz.size, dfed, fed_, scratch);
  }

  for (int64_t n = 0; n < rows; ++n) {
    const int64_t b = first + n;
    std::fill_n(x.dstart[b], X, 0.0f);
    std::copy_n(dfed + n * fed_, c.fed, x.dstart[b] + c.fed_from);
    std::copy_n(dc + n * H, x.dstart_cell.size, x.dstart_cell[b]);
    transpose(c.W, c.M, dmemory + n * WM, M_, x.dstart_memory[b], c.W);
    for (int64_t h = 0; h < c.N; ++h)
      std::copy_n(dnow + n * NM + h * M_, c.M, x.dstart_weights[b] + h * c.M);
  }
}

// --- XLA's side ----------------------------------------------------------------------------------------

// The buffers of a call, one after the other, each as so many rows of so many numbers. A buffer of another size, or
// another number of buffers, is an error.
class Buffers {
 public:
  Buffers(ffi::RemainingArgs args, ffi::RemainingRets rets) : args_(args), rets_(rets) {}

  template <class T = const float>
  Rows<T> in(int64_t rows, int64_t size) {
    const auto buffer = args_.get<ffi::AnyBuffer>(in_++);
    return buffer.has_value() ? of<T>(*buffer, rows, size) : missing<T>();
  }
  template <class T = float>
  Rows<T> out(int64_t rows, int64_t size) {
    auto buffer = rets_.get<ffi::AnyBuffer>(out_++);
    return buffer.has_value() ? of<T>(**buffer, rows, size) : missing<T>();
  }

  ffi::Error error() const {
    if (wrong_ || in_ != args_.size() || out_ != rets_.size())
      return ffi::Error::InvalidArgument("mann: a buffer is missing or of another size than the attributes say, or of another type");
    return ffi::Error::Success();
  }

 private:
  template <class T>
  Rows<T> of(ffi::AnyBuffer buffer, int64_t rows, int64_t size) {
    using Value = std::remove_const_t<T>;
    constexpr auto type = std::is_same_v<Value, float> ? ffi::DataType::F32 : ffi::DataType::S32;
    if (static_cast<int64_t>(buffer.element_count()) != rows * size || buffer.element_type() != type)
      return missing<T>();
    return {buffer.typed_data<Value>(), size};
  }
  template <class T>
  Rows<T> missing() {
    wrong_ = true;
    return {nullptr, 0};
  }

  ffi::RemainingArgs args_;
  ffi::RemainingRets rets_;
  size_t in_ = 0, out_ = 0;
  bool wrong_ = false;
};

template <class Memory>
ffi::Error read_config(ffi::Dictionary dictionary, Config& c) {
  Attributes attributes(dictionary);
  c.B = attributes.size("batch"), c.T = attributes.size("time"), c.H = attributes.size("hidden");
  c.M = attributes.size("slots"), c.W = attributes.size("width"), c.R = attributes.size("heads");
  c.N = attributes.size("weighted");
  c.fed_from = attributes.size("fed_from"), c.fed = attributes.size("fed");
  c.cell_query = attributes.size("cell_query");
  c.interval = attributes.size("interval"), c.targets = attributes.size("targets");
  c.steps = attributes.size("steps"), c.checkpoints = attributes.size("checkpoints");
  c.bfloat16 = attributes.size("bfloat16");
  Memory::options(attributes, c);
  std::string problem = attributes.problem();
  if (problem.empty() && (c.fed_from + c.fed > c.X() || c.interval < 1 || c.erased > c.targets || c.targets > c.M ||
                          (c.checkpoints && c.checkpoints * c.interval < c.T)))
    problem = "the sizes contradict one another";
  return problem.empty() ? ffi::Error::Success() : ffi::Error::InvalidArgument("mann: " + problem);
}

// Numbers in a row of what is recorded of every step, in the order of `Record`.
template <class Controller, class Memory>
struct Recorded {
  Recorded(const Config& c, int64_t parameters)
      : gates(4 * Controller::cells(c)), cells(Controller::cells(c)), heads(parameters), weights(c.N * c.M_()),
        extra(Memory::extra(c)), checkpoints(c.checkpoints * c.W_() * c.M_()), targets(c.targets) {}
  int64_t gates, cells, heads, weights, extra, checkpoints, targets;
};

template <class Controller, class Memory>
ffi::Error forward_call(ffi::ThreadPool pool, ffi::Dictionary attributes, ffi::RemainingArgs args,
                        ffi::RemainingRets rets) {
  Config c;
  if (const auto error = read_config<Memory>(attributes, c); error.failure()) return error;
  const int64_t B = c.B, BT = c.B * c.T, rows = c.B * c.steps, G = Controller::gates(c), P = Memory::parameters(c);
  const int64_t cells = Controller::cells(c), usage = Memory::usage(c);
  Buffers next(args, rets);
  const Forward x{next.in(BT, G),       next.in(1, c.fed * G), next.in(1, c.H * P), next.in(1, P),
                  next.in(B, c.X()),    next.in(B, cells),     next.in(B, c.M * c.W), next.in(B, c.N * c.M),
                  next.in(B, usage),    next.out(BT, c.X()),   next.out(B, c.M * c.W), next.out(B, c.R * c.M),
                  next.out(B, usage)};
  const Recorded<Controller, Memory> size(c, P);
  const Record record{next.out(rows, size.gates),     next.out(rows, size.cells), next.out(rows, size.heads),
                      next.out(rows, size.weights),   next.out(rows, size.extra),
                      next.out(B, size.checkpoints),  next.out<int32_t>(rows, size.targets)};
  if (const auto error = next.error(); error.failure()) return error;
  const Weights recurrent(c.fed, G, x.recurrent.data, G, 1, c.bfloat16);
  const Weights to_heads(c.H, P, x.to_heads.data, P, 1, c.bfloat16);
  for_blocks(pool, B, kRows, [&](int64_t first, int64_t rows) {
    forward<Controller, Memory>(c, x, record, recurrent, to_heads, first, rows);
  });
  return ffi::Error::Success();
}

template <class Controller, class Memory>
ffi::Error backward_call(ffi::ThreadPool pool, ffi::Dictionary attributes, ffi::RemainingArgs args,
                         ffi::RemainingRets rets) {
  Config c;
  if (const auto error = read_config<Memory>(attributes, c); error.failure()) return error;
  const int64_t B = c.B, BT = c.B * c.T, G = Controller::gates(c), P = Memory::parameters(c);
  const int64_t cells = Controller::cells(c);
  Buffers next(args, rets);
  const Recorded<Controller, Memory> size(c, P);
  const Record record{next.in<float>(BT, size.gates),    next.in<float>(BT, size.cells),
                      next.in<float>(BT, size.heads),    next.in<float>(BT, size.weights),
                      next.in<float>(BT, size.extra),     next.in<float>(B, size.checkpoints),
                      next.in<int32_t>(BT, size.targets)};
  const Backward x{next.in(1, c.fed * G),  next.in(1, c.H * P),    next.in(B, cells),       next.in(B, c.N * c.M),
                   next.in(BT, c.X()),     next.in(B, c.M * c.W),  next.in(BT, c.X()),      next.in(B, cells),
                   next.in(B, c.M * c.W),  next.in(B, c.N * c.M),  next.in(B, c.R * c.M),   next.out(BT, G),
                   next.out(BT, P),        next.out(B, c.X()),     next.out(B, cells),      next.out(B, c.M * c.W),
                   next.out(B, c.N * c.M)};
  if (const auto error = next.error(); error.failure()) return error;
  const Weights from_gates(G, c.fed, x.recurrent.data, 1, G, c.bfloat16);
  const Weights from_heads(P, c.H, x.to_heads.data, 1, P, c.bfloat16);
  for_blocks(pool, B, kRows, [&](int64_t first, int64_t rows) {
    backward<Controller, Memory>(c, x, record, from_gates, from_heads, first, rows);
  });
  return ffi::Error::Success();
}

// --- sparse access: sparse.h ---------------------------------------------------------------------------

ffi::Error read_sparse_config(ffi::Dictionary dictionary, SparseConfig& c) {
  Attributes attributes(dictionary);
  c.B = attributes.size("batch"), c.T = attributes.size("time"), c.H = attributes.size("hidden");
  c.M = attributes.size("slots"), c.W = attributes.size("width"), c.R = attributes.size("heads");
  c.K = attributes.size("neighbours"), c.targets = attributes.size("targets");
  c.fed_from = attributes.size("fed_from"), c.fed = attributes.size("fed");
  c.cell_query = attributes.size("cell_query"), c.steps = attributes.size("steps");
  c.threshold = attributes.number("threshold");
  std::string problem = attributes.problem();
  if (problem.empty() && (c.fed_from + c.fed > c.X() || c.K < 1 || c.K > c.M || c.targets < 1 || c.targets > c.M ||
                          (c.targets > 1 && c.targets != c.R)))
    problem = "the sizes contradict one another";
  return problem.empty() ? ffi::Error::Success() : ffi::Error::InvalidArgument("mann: " + problem);
}

// Slots that come from outside, and are used as places in the memory.
bool within(const SparseConfig& c, const Rows<const int32_t>& slots) {
  return std::all_of(slots.data, slots.data + c.B * slots.size, [&](int32_t i) { return 0 <= i && i < c.M; });
}

template <class Controller>
ffi::Error sparse_forward_call(ffi::ThreadPool pool, ffi::Dictionary attributes, ffi::RemainingArgs args,
                               ffi::RemainingRets rets) {
  SparseConfig c;
  if (const auto error = read_sparse_config(attributes, c); error.failure()) return error;
  const int64_t B = c.B, BT = c.B * c.T, rows = c.B * c.steps, G = Controller::gates(c), P = c.parameters();
  const int64_t cells = Controller::cells(c), RK = c.R * c.K, written = c.R * (c.K + 1);
  Buffers next(args, rets);
  const SparseForward x{next.in(BT, G),        next.in(1, c.fed * G),
                        next.in(1, c.H * P),   next.in(1, P),
                        next.in(B, c.X()),     next.in(B, cells),
                        next.in(B, c.M * c.W), next.in(B, RK),
                        next.in<const int32_t>(B, RK), next.in(B, c.M),
                        next.out(BT, c.X()),   next.out(B, c.M * c.W),
                        next.out<int32_t>(B, RK), next.out(B, written),
                        next.out<int32_t>(B, written), next.out(B, c.M)};
  const Record record{next.out(rows, 4 * cells), next.out(rows, cells), next.out(rows, P),
                      next.out(rows, RK),        next.out(rows, RK * c.W), {nullptr, 0},
                      next.out<int32_t>(rows, c.integers())};
  if (const auto error = next.error(); error.failure()) return error;
  if (!within(c, x.slots)) return ffi::Error::InvalidArgument("mann: a state reads from slots that there are not");
  const Weights recurrent(c.fed, G, x.recurrent.data, G, 1, false);
  const Weights to_heads(c.H, P, x.to_heads.data, P, 1, false);
  for_blocks(pool, B, kRows, [&](int64_t first, int64_t rows) {
    sparse_forward<Controller>(c, x, record, recurrent, to_heads, first, rows);
  });
  return ffi::Error::Success();
}

template <class Controller>
ffi::Error sparse_backward_call(ffi::ThreadPool pool, ffi::Dictionary attributes, ffi::RemainingArgs args,
                                ffi::RemainingRets rets) {
  SparseConfig c;
  if (const auto error = read_sparse_config(attributes, c); error.failure()) return error;
  const int64_t B = c.B, BT = c.B * c.T, G = Controller::gates(c), P = c.parameters();
  const int64_t cells = Controller::cells(c), RK = c.R * c.K;
  Buffers next(args, rets);
  const Record record{next.in<float>(BT, 4 * cells), next.in<float>(BT, cells), next.in<float>(BT, P),
                      next.in<float>(BT, RK),        next.in<float>(BT, RK * c.W), {nullptr, 0},
                      next.in<int32_t>(BT, c.integers())};
  const SparseBackward x{next.in(1, c.fed * G), next.in(1, c.H * P),   next.in(B, cells),
                         next.in(B, RK),        next.in(BT, c.X()),    next.in(BT, c.X()),
                         next.in(B, cells),     next.in(B, c.M * c.W), next.in(B, RK),
                         next.in(B, c.R * (c.K + 1)), next.out(BT, G), next.out(BT, P),
                         next.out(B, c.X()),    next.out(B, cells),    next.out(B, c.M * c.W),
                         next.out(B, RK)};
  if (const auto error = next.error(); error.failure()) return error;
  const Weights from_gates(G, c.fed, x.recurrent.data, 1, G, false);
  const Weights from_heads(P, c.H, x.to_heads.data, 1, P, false);
  for_blocks(pool, B, kRows, [&](int64_t first, int64_t rows) {
    sparse_backward<Controller>(c, x, record, from_gates, from_heads, first, rows);
  });
  return ffi::Error::Success();
}

// --- convolutions --------------------------------------------------------------------------------------

ffi::Error read_stack(ffi::Dictionary dictionary, Stack& stack, bool& option, std::string_view name) {
  Attributes attributes(dictionary);
  option = attributes.size(name);
  std::string problem = stack.read(attributes);
  if (const auto other = attributes.problem(); !other.empty()) problem = other;
  return problem.empty() ? ffi::Error::Success() : ffi::Error::InvalidArgument("mann: " + problem);
}

// Run work(first, pictures, part) for a few pictures at a time, those of one part one after the other. Forward and
// backward go through the same ones, since what is recorded is laid out by them.
template <class Work>
void for_pictures(ffi::ThreadPool pool, const Stack& stack, const Work& work) {
  const int64_t most = stack.tiled ? kTile : kPictures, few = (stack.pictures + most - 1) / most;
  const int64_t size = std::max<int64_t>((few + kParts - 1) / kParts * most, 1);
  for_blocks(pool, stack.pictures, size, [&](int64_t first, int64_t rows) {
    for (int64_t n = 0; n < rows; n += most) work(first + n, std::min<int64_t>(most, rows - n), first / size);
  });
}

// Weights and biases of each layer, as they come: put together they would be copied in every call.
struct LayerWeights {
  Kernels weights, biases;

  LayerWeights(const Stack& stack, Buffers& next) {
    for (const auto& layer : stack.layers) weights.push_back(next.in(9 * layer.from, layer.maps).data);
    for (const auto& layer : stack.layers) biases.push_back(next.in(1, layer.maps).data);
  }
  void join_biases(const Stack& stack, float* to) const {
    for (size_t n = 0; n < biases.size(); ++n) to = std::copy_n(biases[n], stack.layers[n].maps, to);
  }
};

ffi::Error convolutions_forward(ffi::ThreadPool pool, ffi::Dictionary attributes, ffi::RemainingArgs args,
                                ffi::RemainingRets rets) {
  Stack stack;
  bool recorded;
  if (const auto error = read_stack(attributes, stack, recorded, "recorded"); error.failure()) return error;
  const int64_t P = stack.pictures, L = static_cast<int64_t>(stack.layers.size());
  Buffers next(args, rets);
  const In pictures = next.in(P, stack.inputs);
  const LayerWeights given(stack, next);
  const Out outputs = next.out(P, stack.outputs()), values = next.out(P, recorded ? stack.values : 0),
            moments = next.out(P, recorded ? 2 * L : 0);
  if (const auto error = next.error(); error.failure()) return error;
  // Transforming the weights takes as long as a picture or two, and a gradient wants what was recorded to be exact.
  stack.filtered = !recorded && !stack.bfloat16 && P >= kPictures;
  const Convolutions convolutions(stack);
  Buffer prepared(convolutions.prepared_weights(), false), biases(stack.biases, false);
  const Kernels ready = convolutions.prepare(given.weights, prepared);
  given.join_biases(stack, biases);
  for_pictures(pool, stack, [&](int64_t first, int64_t rows, int64_t) {
    Buffer value(recorded ? 0 : rows * stack.values, false), moment(rows * 2 * L, false);
    convolutions.forward(rows, pictures[first], ready, biases, recorded ? values[first] : static_cast<float*>(value),
                         recorded ? moments[first] : static_cast<float*>(moment), outputs[first]);
  });
  return ffi::Error::Success();
}

ffi::Error convolutions_backward(ffi::ThreadPool pool, ffi::Dictionary attributes, ffi::RemainingArgs args,
                                 ffi::RemainingRets rets) {
  Stack stack;
  bool to_pictures;
  if (const auto error = read_stack(attributes, stack, to_pictures, "to_pictures"); error.failure()) return error;
  const int64_t P = stack.pictures, L = static_cast<int64_t>(stack.layers.size());
  Buffers next(args, rets);
  const In pictures = next.in(P, stack.inputs);
  const LayerWeights given(stack, next);
  const In values = next.in(P, stack.values), moments = next.in(P, 2 * L), doutputs = next.in(P, stack.outputs());
  const Out dweights = next.out(1, stack.weights), dbiases = next.out(1, stack.biases),
            dpictures = next.out(P, to_pictures ? stack.inputs : 0);
  if (const auto error = next.error(); error.failure()) return error;

  // A gradient for each part of the batch, summed in order: the same on any number of cores.
  const int64_t total = stack.weights + stack.biases;
  const Convolutions convolutions(stack);
  Buffer parts(kParts * total), packed(stack.weights, false), turned(convolutions.turned_weights(), false);
  Buffer biases(stack.biases, false);
  convolutions.pack(given.weights, packed);
  convolutions.pack_turned(given.weights, turned);
  given.join_biases(stack, biases);
  const Kernels ready = convolutions.split(packed);
  for_pictures(pool, stack, [&](int64_t first, int64_t rows, int64_t number) {
    float* part = parts + number * total;
    convolutions.backward(rows, pictures[first], ready, turned, biases, values[first], moments[first],
                          doutputs[first], part, part + stack.weights, to_pictures ? dpictures[first] : nullptr);
  });
  const auto sum = [&](int64_t from, int64_t count, float* to) {
    std::copy_n(parts + from, count, to);
    for (int64_t n = 1; n < kParts; ++n)
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) to[i] += parts[n * total + from + i];
  };
  sum(0, stack.weights, dweights.data);
  sum(stack.weights, stack.biases, dbiases.data);
  return ffi::Error::Success();
}

// --- products in bfloat16 ---------------------------------------------------------------------------------

struct Product {
  int64_t rows, depth, columns;
  bool left_transposed, right_transposed;
  const float *a, *b;
  float* c;
};

// In tiles, the rows some at a time, shared by the threads.
void multiply_in_tiles(ffi::ThreadPool pool, const Product& x) {
  constexpr int64_t kSome = 4 * kTile;
  const int64_t deep = round_up(words<Bfloat16>(x.depth), kTile), width = round_up(x.columns, kTile);
  Buffer right(deep * width), wide(width == x.columns ? 0 : x.rows * width, false);
  float* to = width == x.columns ? x.c : static_cast<float*>(wide);
  share(pool, (x.columns + kSome - 1) / kSome, [&](int64_t part) {
    const int64_t j = part * kSome, row = x.right_transposed ? 1 : x.columns, column = x.right_transposed ? x.depth : 1;
    pack_words(x.depth, std::min(x.columns - j, kSome), x.b + j * column, row, column, right + j, width);
  });
  share(pool, (x.rows + kSome - 1) / kSome, [&](int64_t part) {
    const int64_t i = part * kSome, some = std::min(x.rows - i, kSome);
    Buffer left(some * deep);
    if (x.left_transposed)
      for (int64_t r = 0; r < some; ++r)
        pack_words(x.depth, 1, x.a + i + r, x.rows, 0, left + r * deep, 1);
    else
      pack_rows<Bfloat16>(some, x.depth, x.a + i * x.depth, x.depth, left, deep);
    const Pair whole{0, 0};
    mann::multiply_in_tiles(some, 1, &whole, deep, width, left, 0, deep, right, 0, width, to + i * width, width, false);
    for (int64_t r = i; r < i + some && to != x.c; ++r) std::copy_n(to + r * width, x.columns, x.c + r * x.columns);
  });
}

// C (rows × columns) = A (rows × depth) B (depth × columns) in bfloat16. Each factor may be given transposed. The
// depth is taken in parts that fit into the L2 cache, and the rows a panel at a time, shared by the threads.
ffi::Error product_call(ffi::ThreadPool pool, ffi::Dictionary dictionary, ffi::RemainingArgs args,
                        ffi::RemainingRets rets) {
  Attributes attributes(dictionary);
  const int64_t rows = attributes.size("rows"), depth = attributes.size("depth"), columns = attributes.size("columns");
  const bool left_transposed = attributes.size("left_transposed");
  const bool right_transposed = attributes.size("right_transposed");
  if (const auto problem = attributes.problem(); !problem.empty())
    return ffi::Error::InvalidArgument("mann: " + problem);
  Buffers next(args, rets);
  const auto a = next.in(rows, depth), b = next.in(depth, columns);
  const auto c = next.out(rows, columns);
  if (const auto error = next.error(); error.failure()) return error;
  if (has_tiles() && depth) {
    multiply_in_tiles(pool, {rows, depth, columns, left_transposed, right_transposed, a.data, b.data, c.data});
    return ffi::Error::Success();
  }

  constexpr int64_t kDeep = 1024;
  const int64_t padded = round_up(columns, kLanes), parts = (padded + kPanel - 1) / kPanel;
  const int64_t chunks = (rows + kPanel - 1) / kPanel, most = words<Bfloat16>(std::min(depth, kDeep));
  Buffer right(most * padded, false), wide(padded == columns ? 0 : rows * padded, false);
  float* to = padded == columns ? c.data : static_cast<float*>(wide);
  if (depth == 0) std::fill_n(c.data, rows * columns, 0.0f);
  for (int64_t k = 0; k < depth; k += kDeep) {
    const int64_t numbers = std::min(depth - k, kDeep), deep = words<Bfloat16>(numbers);
    share(pool, parts, [&](int64_t part) {
      const int64_t j = part * kPanel, row = right_transposed ? 1 : columns, column = right_transposed ? depth : 1;
      pack_panels<Bfloat16>(numbers, std::min<int64_t>(columns - j, kPanel), b.data + k * row + j * column, row,
                            column, right + j * deep);
    });
    share(pool, chunks, [&](int64_t chunk) {
      const int64_t i = chunk * kPanel, some = std::min<int64_t>(rows - i, kPanel), high = round_up(some, kLanes);
      Buffer left(high * deep, false);
      if (left_transposed)
        pack_panels<Bfloat16>(numbers, some, a.data + k * rows + i, rows, 1, left);
      else
        pack_rows<Bfloat16>(some, numbers, a.data + i * depth + k, depth, left, deep);
      const int64_t a_row = left_transposed ? 1 : deep, a_col = left_transposed ? high : 1;
      for (int64_t j = 0; j < padded; j += kPanel) {
        const int64_t width = std::min<int64_t>(padded - j, kPanel);
        multiply<Bfloat16>(some, deep, width, left, a_row, a_col, right + j * deep, width, to + i * padded + j,
                           padded, k > 0);
      }
      if (padded != columns && k + kDeep >= depth)
        for (int64_t r = i; r < i + some; ++r) std::copy_n(to + r * padded, columns, c.data + r * columns);
    });
  }
  return ffi::Error::Success();
}

// --- the optimiser -------------------------------------------------------------------------------------

// Newton–Schulz iterations of the blocks of columns of some weight matrices that belong to this device. The result
// is one block after the other, without gaps.
ffi::Error orthogonalise_call(ffi::ThreadPool pool, ffi::Dictionary dictionary, ffi::RemainingArgs args,
                              ffi::RemainingRets rets) {
  Attributes attributes(dictionary);
  const Iterations iterations{attributes.size("steps"), attributes.number("a"), attributes.number("b"),
                              attributes.number("c")};
  const bool bfloat16 = attributes.size("bfloat16");
  const int64_t room = attributes.size("room");
  const auto rows = attributes.sizes("rows"), columns = attributes.sizes("columns");  // of the blocks of each matrix
  const auto blocks = attributes.sizes("blocks"), owners = attributes.sizes("owners");
  if (const auto problem = attributes.problem(); !problem.empty())
    return ffi::Error::InvalidArgument("mann: " + problem);
  Buffers next(args, rets);
  const auto device = next.in<const int32_t>(1, 1);
  struct Task {
    const float* from;
    int64_t rows, columns, row, to;
  };
  std::vector<Task> tasks;
  int64_t block = 0, size = 0;
  bool fits = rows.size() == columns.size() && rows.size() == blocks.size();
  for (size_t n = 0; fits && n < rows.size(); ++n) {
    const auto matrix = next.in(rows[n], columns[n] * blocks[n]);
    for (int64_t k = 0; k < blocks[n]; ++k, ++block) {
      fits = fits && block < static_cast<int64_t>(owners.size());
      if (!fits || !matrix.data || !device.data || owners[block] != device.data[0]) continue;
      tasks.push_back({matrix.data + k * columns[n], rows[n], columns[n], matrix.size, size});
      size += rows[n] * columns[n];
    }
  }
  const auto to = next.out(1, room);
  if (const auto error = next.error(); error.failure()) return error;
  if (!fits || size > room) return ffi::Error::InvalidArgument("mann: the sizes contradict one another");
  share(pool, tasks.size(), [&](int64_t n) {
    const Task& task = tasks[n];
    if (bfloat16 && has_tiles())
      NewtonSchulz<Tiled>(task.rows, task.columns)(iterations, task.from, task.row, to.data + task.to);
    else if (bfloat16)
      NewtonSchulz<Bfloat16>(task.rows, task.columns)(iterations, task.from, task.row, to.data + task.to);
    else
      NewtonSchulz<Float32>(task.rows, task.columns)(iterations, task.from, task.row, to.data + task.to);
  });
  std::fill(to.data + size, to.data + room, 0.0f);
  return ffi::Error::Success();
}

}  // namespace
}  // namespace mann

// Whether products in bfloat16 go through the processor's tiles.
extern "C" int mann_has_tiles() { return mann::has_tiles(); }

#define MANN_BINDING               \
  xla::ffi::Ffi::Bind()            \
      .Ctx<xla::ffi::ThreadPool>() \
      .Attrs()                     \
      .RemainingArgs()             \
      .RemainingRets()

// The two calls of a network, by the names of TARGETS in build.py.
#define MANN_NETWORK(name, Controller, Memory)                                                    \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(mann_##name##_forward,                                            \
                                (mann::forward_call<mann::Controller, mann::Memory>), MANN_BINDING); \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(mann_##name##_backward,                                           \
                                (mann::backward_call<mann::Controller, mann::Memory>), MANN_BINDING)

MANN_NETWORK(lstm_lrua, Lstm, Lrua);
MANN_NETWORK(lstm_ntm, Lstm, Ntm);
MANN_NETWORK(lstm_none, Lstm, NoMemory);
MANN_NETWORK(feedforward_lrua, FeedForward, Lrua);
MANN_NETWORK(feedforward_ntm, FeedForward, Ntm);

XLA_FFI_DEFINE_HANDLER_SYMBOL(mann_convolutions_forward, mann::convolutions_forward, MANN_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(mann_convolutions_backward, mann::convolutions_backward, MANN_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(mann_product, mann::product_call, MANN_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(mann_orthogonalise, mann::orthogonalise_call, MANN_BINDING);

#define MANN_SPARSE(Controller, name)                                                                              \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(mann_##name##_sparse_forward, mann::sparse_forward_call<mann::Controller>,         \
                                MANN_BINDING);                                                                     \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(mann_##name##_sparse_backward, mann::sparse_backward_call<mann::Controller>,       \
                                MANN_BINDING)

MANN_SPARSE(Lstm, lstm);
MANN_SPARSE(FeedForward, feedforward);
