#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "bench/gpu/bare_loop.h"
#include "bench/gpu/http_load.h"

int main(int argc, char** argv) {
  CLI::App app("The bare loop over a plan, and HTTP load for the server over the same plan");
  app.require_subcommand(1);
  std::string plan, library = "libnvinfer.so.11", cuda = "libcuda.so.1";
  bool quick = false;
  CLI::App* bare = app.add_subcommand("bare", "runs a plan without a server");
  bare->add_option("--plan", plan)->required();
  bare->add_option("--library", library);
  bare->add_option("--cuda", cuda);
  bare->add_flag("--quick", quick);
  int count = 10;
  CLI::App* loads = app.add_subcommand("loads", "loads and unloads a plan without a server, and no more");
  loads->add_option("--plan", plan)->required();
  loads->add_option("--library", library);
  loads->add_option("--cuda", cuda);
  loads->add_option("--count", count);
  std::vector<std::int64_t> batches;
  std::int64_t side = 1;
  CLI::App* rates = app.add_subcommand("rates", "runs a plan without a server at some batches, and no more");
  rates->add_option("--plan", plan)->required();
  rates->add_option("--library", library);
  rates->add_option("--cuda", cuda);
  rates->add_option("--batches", batches)->delimiter(',')->required();
  rates->add_option("--side", side, "size of every free dimension but the first");
  rates->add_flag("--quick", quick);
  tidemark::bench::HttpLoad load;
  CLI::App* http = app.add_subcommand("load", "asks a server");
  http->add_option("--port", load.port)->required();
  http->add_option("--model", load.model)->required();
  http->add_option("--inputs", load.inputs)->delimiter(',')->required();
  http->add_option("--shape", load.shape)->delimiter(',')->required();
  http->add_option("--datatype", load.datatype, "FP32 or INT32");
  http->add_option("--connections", load.connections);
  http->add_option("--threads", load.threads);
  http->add_option("--seconds", load.seconds);
  CLI11_PARSE(app, argc, argv);
  const std::string figures = bare->parsed()    ? tidemark::bench::BareLoop(plan, library, cuda, quick)
                              : loads->parsed() ? tidemark::bench::BareLoads(plan, library, cuda, count)
                              : rates->parsed() ? tidemark::bench::BareRates(plan, library, cuda, batches, side, quick)
                                                : tidemark::bench::RunHttpLoad(load);
  fmt::print("{}\n", figures);
  return 0;
}
