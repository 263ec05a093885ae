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
// A controller (controllers.h) and a memory (lrua.h, ntm.h) make a network.

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "controllers.h"
#include "lrua.h"
#include "ntm.h"
#include "xla/ffi/api/ffi.h"

namespace mann {
namespace {

namespace ffi = xla::ffi;

// A network without a memory.
struct NoMemory {
  explicit NoMemory(const Config&) {}
  void forward(const Step&, const float*, float*, float*, float*, float*) {}
  void backward(const Step&, const float*, const float*, float*, float*, const float*, float*, const float*,
                float*, float*) {}
};

// Run work(first, rows) for blocks of the B episodes, on this thread and on idle ones of XLA's pool. A helper
// that comes too late finds nothing left to do, so that this thread only ever waits for work that has begun.
template <class Work>
void for_blocks(ffi::ThreadPool pool, int64_t B, const Work& work) {
  struct Shared {
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    std::condition_variable finished;
    int64_t done = 0;
  };
  const auto shared = std::make_shared<Shared>();
  const int64_t blocks = (B + kRows - 1) / kRows;
  const auto run = [shared, blocks, B, &work] {
    for (int64_t block; (block = shared->next++) < blocks;) {
      work(block * kRows, std::min<int64_t>(kRows, B - block * kRows));
      std::lock_guard<std::mutex> lock(shared->mutex);
      if (++shared->done == blocks) shared->finished.notify_one();
    }
  };
  const int64_t helpers = std::min(blocks, pool.num_threads()) - 1;
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule([run] { run(); });
  run();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->finished.wait(lock, [&] { return shared->done == blocks; });
}

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
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t b = first + n;
    transpose(c.M, c.W, x.memory[b], c.W, memory + n * WM, M_);
    for (int64_t h = 0; h < c.N; ++h) std::copy_n(x.weights[b] + h * c.M, c.M, weights + n * NM + h * M_);
    std::copy_n(x.usage[b], x.usage.size, x.last_usage[b]);
  }

  for (int64_t t = 0; t < T; ++t) {
    const float* before = t ? x.hidden[first * T + t - 1] : x.start[first];
    recurrent.apply(rows, before + c.fed_from, t ? T * X : X, z, Z);
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n;
      const float* previous = t ? record.at(c, b, t - 1).cell : x.cell[b];
      Controller::forward(c, z + n * Z, x.projected[b * T + t], previous, record.at(c, b, t),
                          x.hidden[b * T + t]);
    }

    const float* query = c.cell_query ? record.at(c, first, t).cell : x.hidden[first * T + t];
    to_heads.apply(rows, query, c.cell_query ? c.steps * H : T * X, parameters, P_);
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

    from_heads.apply(rows, x.dheads[first * T + t], T * x.dheads.size, dquery, H_);
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = first + n;
      const float* previous = t ? record.at(c, b, t - 1).cell : x.cell[b];
      float *dh = d + n * X, *dqueried = c.cell_query ? dc + n * H : dh;
      for (int64_t j = 0; j < H; ++j) dqueried[j] += dquery[n * H_ + j];
      Controller::backward(c, record.at(c, b, t), previous, x.hidden[b * T + t], dh, dc + n * H,
                           x.dz[b * T + t]);
    }
    from_gates.apply(rows, x.dz[first * T + t], T * x.dz.size, dfed, fed_);
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

// The buffers of a call, one after the other, each as so many rows.
class Buffers {
 public:
  Buffers(ffi::RemainingArgs args, ffi::RemainingRets rets) : args_(args), rets_(rets) {}
  template <class T = const float>
  Rows<T> in(int64_t rows = 1) { return of<T>(*args_.get<ffi::AnyBuffer>(in_++), rows); }
  template <class T = float>
  Rows<T> out(int64_t rows = 1) { return of<T>(**rets_.get<ffi::AnyBuffer>(out_++), rows); }

 private:
  template <class T>
  static Rows<T> of(ffi::AnyBuffer buffer, int64_t rows) {
    return {buffer.typed_data<std::remove_const_t<T>>(), static_cast<int64_t>(buffer.element_count()) / rows};
  }

  ffi::RemainingArgs args_;
  ffi::RemainingRets rets_;
  size_t in_ = 0, out_ = 0;
};

Config config_of(ffi::Span<const int64_t> s, float decay, float strength) {
  return {s[0], s[1],  s[2],  s[3],  s[4],  s[5],  s[6],  s[7],  s[8],  s[9],
          s[10], s[11], s[12], s[13], s[14], s[15], s[16], s[17], decay, strength};
}

template <class Controller, class Memory>
ffi::Error forward_call(ffi::ThreadPool pool, ffi::Span<const int64_t> sizes, float decay, float strength,
                        ffi::RemainingArgs args, ffi::RemainingRets rets) {
  const Config c = config_of(sizes, decay, strength);
  const int64_t B = c.B, BT = c.B * c.T, kept = c.B * c.steps;
  Buffers next(args, rets);
  const Forward x{next.in(BT), next.in(),  next.in(),  next.in(),  next.in(B),
                  next.in(B),  next.in(B), next.in(B), next.in(B), next.out(BT),
                  next.out(B), next.out(B), next.out(B)};
  const Record record{next.out(kept), next.out(kept), next.out(kept),         next.out(kept),
                      next.out(kept), next.out(B),    next.out<int32_t>(kept)};
  const Weights recurrent(c.fed, x.projected.size, x.recurrent.data, x.projected.size, 1);
  const Weights to_heads(c.H, x.bias.size, x.to_heads.data, x.bias.size, 1);
  for_blocks(pool, B, [&](int64_t first, int64_t rows) {
    forward<Controller, Memory>(c, x, record, recurrent, to_heads, first, rows);
  });
  return ffi::Error::Success();
}

template <class Controller, class Memory>
ffi::Error backward_call(ffi::ThreadPool pool, ffi::Span<const int64_t> sizes, float decay, float strength,
                         ffi::RemainingArgs args, ffi::RemainingRets rets) {
  const Config c = config_of(sizes, decay, strength);
  const int64_t B = c.B, BT = c.B * c.T;
  Buffers next(args, rets);
  const Record record{next.in<float>(BT), next.in<float>(BT), next.in<float>(BT),  next.in<float>(BT),
                      next.in<float>(BT), next.in<float>(B),  next.in<int32_t>(BT)};
  const Backward x{next.in(),    next.in(),    next.in(B),  next.in(B),  next.in(BT), next.in(B),
                   next.in(BT),  next.in(B),   next.in(B),  next.in(B),  next.in(B),  next.out(BT),
                   next.out(BT), next.out(B),  next.out(B), next.out(B), next.out(B)};
  const Weights from_gates(x.dz.size, c.fed, x.recurrent.data, 1, x.dz.size);
  const Weights from_heads(x.dheads.size, c.H, x.to_heads.data, 1, x.dheads.size);
  for_blocks(pool, B, [&](int64_t first, int64_t rows) {
    backward<Controller, Memory>(c, x, record, from_gates, from_heads, first, rows);
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace mann

#define MANN_BINDING                                \
  xla::ffi::Ffi::Bind()                             \
      .Ctx<xla::ffi::ThreadPool>()                  \
      .Attr<xla::ffi::Span<const int64_t>>("sizes") \
      .Attr<float>("decay")                         \
      .Attr<float>("strength")                      \
      .RemainingArgs()                              \
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
