#include "frontend/http/route_match.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

struct PathCase {
  std::string_view path;
  Route route;
  std::string_view model;
  std::string_view version;
  std::string_view extra;  // repository or region
};

TEST(RouteMatch, PathsMatchAsTritonsExpressionsDo) {
  const PathCase cases[] = {
      {"/v2", Route::kServerMetadata, "", "", ""},
      {"/v2/health/live", Route::kLive, "", "", ""},
      {"/v2/health/ready", Route::kReady, "", "", ""},
      {"/v2/models/m", Route::kModelMetadata, "m", "", ""},
      {"/v2/models/m/versions/1", Route::kModelMetadata, "m", "1", ""},
      {"/v2/models/a%20b/ready", Route::kModelReady, "a%20b", "", ""},
      {"/v2/models/m/versions/01/infer", Route::kInfer, "m", "01", ""},
      {"/v2/models/m/infer", Route::kInfer, "m", "", ""},
      {"/v2/models/m/config", Route::kModelConfig, "m", "", ""},
      {"/v2/models/m/stats", Route::kModelStatistics, "m", "", ""},
      {"/v2/models/stats", Route::kAllStatistics, "", "", ""},
      {"/v2/models/stats/infer", Route::kInfer, "stats", "", ""},
      {"/v2/models/stats/versions/1", Route::kModelMetadata, "stats", "1", ""},
      {"/v2/memory", Route::kMemory, "", "", ""},
      {"/v2/models/m/memory", Route::kModelMemory, "m", "", ""},
      {"/v2/models/m/versions/2/memory", Route::kModelMemory, "m", "2", ""},
      {"/dashboard", Route::kDashboard, "", "", ""},
      {"/dashboard/", Route::kDashboard, "", "", ""},
      {"/v2/models/m/generate", Route::kGenerate, "m", "", ""},
      {"/v2/models/m/generate_stream", Route::kGenerateStream, "m", "", ""},
      {"/v2/models/m/trace/setting", Route::kModelTrace, "m", "", ""},
      {"/v2/trace/setting", Route::kTrace, "", "", ""},
      {"/v2/logging", Route::kLogging, "", "", ""},
      {"/v2/repository/index", Route::kIndex, "", "", ""},
      {"/v2/repository/r/index", Route::kIndex, "", "", "r"},
      {"/v2/repository/models/index", Route::kIndex, "", "", "models"},
      {"/v2/repository/models/m/load", Route::kLoad, "m", "", ""},
      {"/v2/repository/models/m/unload", Route::kUnload, "m", "", ""},
      {"/v2/repository/r/models/m/load", Route::kLoad, "m", "", "r"},
      {"/v2/repository/models/models/m/load", Route::kLoad, "m", "", "models"},
      {"/v2/repository/models/models/load", Route::kLoad, "models", "", ""},
      {"/v2/systemsharedmemory/status", Route::kSystemMemoryStatus, "", "", ""},
      {"/v2/systemsharedmemory/region/r/register", Route::kSystemMemoryRegister, "", "", "r"},
      {"/v2/cudasharedmemory/unregister", Route::kCudaMemoryUnregister, "", "", ""},
      {"/v2/cudasharedmemory/region/r/status", Route::kCudaMemoryStatus, "", "", "r"},
  };
  for (const PathCase& c : cases) {
    const RouteMatch match = MatchRoute(c.path);
    EXPECT_EQ(match.route, c.route) << c.path;
    EXPECT_EQ(match.model, c.model) << c.path;
    EXPECT_EQ(match.version, c.version) << c.path;
    EXPECT_EQ(match.repository.empty() ? match.region : match.repository, c.extra) << c.path;
  }
}

TEST(RouteMatch, EverythingElseIsNotFound) {
  for (const std::string_view path : {"",
                                      "/",
                                      "/v1",
                                      "/v2/",
                                      "/v2x",
                                      "/v2/health",
                                      "/v2/health/live/",
                                      "/v2/models",
                                      "/v2/models/",
                                      "/v2/models/m/",
                                      "/v2/models//infer",
                                      "/v2/models/m/versions",
                                      "/v2/models/m/versions/",
                                      "/v2/models/m/versions/v1",
                                      "/v2/models/m/versions/-1/infer",
                                      "/v2/models/m/infer/",
                                      "/v2/models/m/unknown",
                                      "/v2/models/m/x/infer",
                                      "/v2/models/m/versions/1/trace/setting",
                                      "/v2/logging/",
                                      "/v2/repository",
                                      "/v2/repository/",
                                      "/v2/repository//index",
                                      "/v2/repository/models/m",
                                      "/v2/repository/models//load",
                                      "/v2/repository/a/b/index",
                                      "/v2/systemsharedmemory",
                                      "/v2/systemsharedmemory/region//status",
                                      "/v2/cudasharedmemory/region/r",
                                      "/V2",
                                      "/v2%2Fmodels"}) {
    EXPECT_EQ(MatchRoute(path).route, Route::kNotFound) << path;
  }
}

}  // namespace
}  // namespace tidemark
