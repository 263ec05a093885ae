// Processor time of single parts of the kernel on one core: the least of many rounds, so that other processes matter
// little. Convolutions as in `mann bench` (four layers of 64 maps, 28×28 pixels) and Newton–Schulz iterations of all
// matrices of the headline setting.
//
//     INCLUDE=$(python -c "import jax; print(jax.ffi.include_dir())")
//     c++ -std=c++17 -O3 -march=native -fopenmp-simd -fno-math-errno -fno-trapping-math -ffp-contract=fast \
//         -isystem $INCLUDE -I src/mann/native benchmarks/parts.cpp -o parts && ./parts
//
// -DMANN_PICTURES=16 takes another number of pictures at a time through the convolutions.
#include <cstdio>
#include <ctime>
#include <random>

#include "convolutions.h"
#include "newton_schulz.h"

using namespace mann;

double seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Work>
double least(int rounds, const Work& work) {
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    const double began = seconds();
    work();
    best = std::min(best, seconds() - began);
  }
  return best;
}

std::vector<float> noise(int64_t size, float scale = 1) {
  static std::mt19937 generator(0);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = scale * normal(generator);
  return values;
}

void convolutions(bool bfloat16) {
  constexpr int64_t kAll = 96, kMaps = 64;
  Stack stack;
  stack.pictures = kAll, stack.inputs = 28 * 28, stack.bfloat16 = bfloat16;
  int64_t side = 28, from = 1;
  for (const int64_t stride : {2, 2, 2, 1}) {
    stack.add(side, from, stride, kMaps);
    side = stack.layers.back().places, from = kMaps;
  }
  const Convolutions call(stack);
  const auto pictures = noise(kAll * stack.inputs), weights = noise(stack.weights, 0.05f), biases = noise(stack.biases),
             doutputs = noise(kAll * stack.outputs());
  std::vector<float> values(kAll * stack.values), moments(kAll * 8), outputs(doutputs.size());
  std::vector<float> dweights(stack.weights), dbiases(stack.biases);
  Buffer packed(stack.weights), turned(call.turned_weights());
  call.pack(call.split(weights.data()), packed), call.pack_turned(call.split(weights.data()), turned);
  const Kernels ready = call.split(packed);
  const auto some = [&](const auto& work) {
    for (int64_t p = 0; p < kAll; p += kPictures) work(p, std::min(kPictures, kAll - p));
  };
  const double forward = least(25, [&] {
    some([&](int64_t p, int64_t n) {
      call.forward(n, &pictures[p * stack.inputs], ready, biases.data(), &values[p * stack.values], &moments[p * 8],
                   &outputs[p * stack.outputs()]);
    });
  });
  const double backward = least(25, [&] {
    some([&](int64_t p, int64_t n) {
      call.backward(n, &pictures[p * stack.inputs], ready, turned, biases.data(), &values[p * stack.values],
                    &moments[p * 8], &doutputs[p * stack.outputs()], dweights.data(), dbiases.data(), nullptr);
    });
  });
  std::printf("convolutions, %s: forward %5.1f, backward %5.1f µs per picture; 400 pictures %5.1f ms\n",
              bfloat16 ? "bfloat16" : "float32 ", 1e6 * forward / kAll, 1e6 * backward / kAll,
              400e3 * (forward + backward) / kAll);
}

template <class Precision>
void newton_schulz(const char* name) {
  struct {
    int64_t rows, columns;
    int count;
  } shapes[] = {{405, 200, 4}, {200, 200, 4}, {160, 200, 4}, {200, 160, 2}};
  double all = 0;
  for (const auto& [rows, columns, count] : shapes) {
    const auto matrix = noise(rows * columns);
    std::vector<float> result(matrix.size());
    all += count * least(60, [&, rows = rows, columns = columns] {
      NewtonSchulz<Precision>(rows, columns)({3, 3.4445f, -4.7750f, 2.0315f}, matrix.data(), columns, result.data());
    });
  }
  std::printf("Newton-Schulz, %s: %5.2f ms\n", name, 1e3 * all);
}

int main() {
  convolutions(false);
  convolutions(true);
  newton_schulz<Float32>("float32 ");
  newton_schulz<Bfloat16>("bfloat16");
}
