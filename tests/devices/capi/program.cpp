// A C++ program that uses tracing_kineto.h: ranges end with their blocks, however control leaves them.
#include "tracing_kineto.h"

#include <stdexcept>
#include <type_traits>

static_assert(!std::is_copy_constructible<tracing_kineto::Range>::value, "one object ends a range");
static_assert(std::is_same<decltype(&tracing_kineto_push_range), int (*)(const char *, int)>::value, "its type");
static_assert(std::is_same<decltype(&tracing_kineto_arg_int), int (*)(const char *, std::int64_t)>::value, "its type");

static void fail() {
  const tracing_kineto::Range range("fails", TRACING_KINETO_OP);
  throw std::runtime_error("yes");
}

int main() {
  if (tracing_kineto_init() != TRACING_KINETO_OK) return 1;
  {
    const tracing_kineto::Range step("step");
    try {
      fail();
    } catch (const std::runtime_error &error) {
      tracing_kineto_arg_string("caught", error.what());
    }
    // Kind 9 does not exist: no range was opened, so none is closed.
    const tracing_kineto::Range none("none", 9);
  }
  const int left = tracing_kineto_pop_range();
  return left == TRACING_KINETO_NOTHING_OPEN && tracing_kineto_shutdown() == TRACING_KINETO_OK ? 0 : 1;
}
