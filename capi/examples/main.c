/*
 * Records the steps, operations and queue of a training loop in C.
 *
 *   cargo build --release -p tracing-kineto-capi
 *   cc -I capi/include capi/examples/main.c -L target/release -ltracing_kineto_capi -lm -o demo
 *   LD_LIBRARY_PATH=target/release KINETO_ACTIVITIES_LOG_FILE=capi.pt.trace.json ./demo
 *
 * The file is capi_<process id>.pt.trace.json; drag it onto https://ui.perfetto.dev. Without that variable the program runs
 * without profiling.
 */
#include "tracing_kineto.h"

#include <math.h>
#include <stdio.h>

static double work(int items) {
  double sum = 0;
  for (int item = 1; item <= items; item++) sum += sqrt(item);
  return sum;
}

static double operation(const char *name, int items) {
  tracing_kineto_push_range(name, TRACING_KINETO_OP);
  tracing_kineto_arg_int("items", items);
  double result = work(items);
  tracing_kineto_pop_range();
  return result;
}

int main(void) {
  int status = tracing_kineto_init();
  if (status != TRACING_KINETO_OK && status != TRACING_KINETO_DISABLED) {
    fprintf(stderr, "no trace: %s\n", tracing_kineto_last_error());
  }
  double loss = 0;
  for (int step = 0; step < 3; step++) {
    char name[32];
    snprintf(name, sizeof name, "ProfilerStep#%d", step);
    tracing_kineto_push_range(name, TRACING_KINETO_ANNOTATION);
    tracing_kineto_counter("queue", 3 - step);
    loss = operation("forward", 20000) / operation("backward", 40000);
    tracing_kineto_arg_double("loss", loss);
    tracing_kineto_pop_range();
    tracing_kineto_step();
  }
  printf("loss %.3f\n", loss);
  tracing_kineto_shutdown();
  return 0;
}
