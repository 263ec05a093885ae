// Work on all idle cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "xla/ffi/api/ffi.h"

namespace mann {

// Run work(task) for every task, on this thread and on idle ones of XLA's pool. A helper that comes too late finds
// nothing left to do, so that this thread only ever waits for work that has begun.
template <class Work>
void share(xla::ffi::ThreadPool pool, int64_t tasks, const Work& work) {
  struct Shared {
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    std::condition_variable finished;
    int64_t done = 0;
  };
  if (tasks == 0) return;
  const auto shared = std::make_shared<Shared>();
  const auto run = [shared, tasks, &work] {
    for (int64_t task; (task = shared->next++) < tasks;) {
      work(task);
      std::lock_guard<std::mutex> lock(shared->mutex);
      if (++shared->done == tasks) shared->finished.notify_one();
    }
  };
  const int64_t helpers = std::min(tasks, pool.num_threads()) - 1;
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule([run] { run(); });
  run();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->finished.wait(lock, [&] { return shared->done == tasks; });
}

// Run work(first, rows) for blocks of `size` of the B members of a batch.
template <class Work>
void for_blocks(xla::ffi::ThreadPool pool, int64_t B, int64_t size, const Work& work) {
  share(pool, (B + size - 1) / size,
        [&](int64_t block) { work(block * size, std::min<int64_t>(size, B - block * size)); });
}

}  // namespace mann
