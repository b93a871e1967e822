#include "repository/model_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/status.h"
#include "repository/config_io.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A directory of its own for each test.
class ModelRepositoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tidemark-repository-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override {
    std::error_code error;
    fs::remove_all(root_, error);
  }

  void Write(const fs::path& relative, std::string_view bytes = "") {
    fs::create_directories((root_ / relative).parent_path());
    std::ofstream(root_ / relative, std::ios::binary) << bytes;
  }

  std::unique_ptr<ModelRepository> Open(RepositoryOptions options = {}) {
    if (options.roots.empty()) options.roots = {root_};
    auto repository = ModelRepository::Create(std::move(options));
    EXPECT_TRUE(repository.ok()) << repository.status();
    return *std::move(repository);
  }

  static std::string ErrorOf(const absl::StatusOr<ModelSource>& source) {
    EXPECT_FALSE(source.ok());
    return std::string(MessageOf(source.status()));
  }

  fs::path root_;
};

constexpr std::string_view kConfig = "backend: \"identity\"\n";

TEST_F(ModelRepositoryTest, RootsMustBeDirectories) {
  EXPECT_EQ(MessageOf(ModelRepository::Create({}).status()), "--model-repository must be specified");
  const auto missing = ModelRepository::Create({.roots = {root_ / "nowhere"}, .config_name = ""});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(MessageOf(missing.status())), StartsWith("repository path is not a valid directory"));
}

TEST_F(ModelRepositoryTest, EverySubdirectoryIsAModelAndFilesAreNot) {
  fs::create_directories(root_ / "b");
  fs::create_directories(root_ / ".hidden");
  Write("file.txt");
  const auto names = Open()->Names();
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 2U);
  EXPECT_EQ((*names)[0].name, ".hidden");
  EXPECT_EQ((*names)[1].name, "b");
  EXPECT_FALSE((*names)[1].duplicate());
}

TEST_F(ModelRepositoryTest, AVanishedRootIsAnErrorAndNotAnEmptyRepository) {
  const auto repository = Open();
  fs::remove_all(root_);
  EXPECT_EQ(repository->Names().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ModelRepositoryTest, AMountedModelIsFoundByItsNameUntilItIsUnmounted) {
  fs::create_directories(root_ / "own");
  Write("other/plain/1/f");
  Write("other/plain/config.pbtxt", "name: \"plain\" backend: \"identity\"\n");
  const auto repository = Open({.roots = {root_ / "own"}, .config_name = "", .auto_complete = true});
  ASSERT_TRUE(repository->Mount("served", root_ / "other").ok());
  EXPECT_EQ(repository->Mount("served", root_ / "other").code(), absl::StatusCode::kAlreadyExists);
  const auto source = repository->Resolve("served");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->config.name(), "served");
  EXPECT_TRUE(fs::equivalent(source->directory, root_ / "other/plain"));
  EXPECT_TRUE(repository->Find("plain").empty()) << "it has one name";
  ASSERT_EQ(repository->Names()->size(), 1U);
  repository->Unmount("served");
  EXPECT_TRUE(repository->Find("served").empty());
  EXPECT_TRUE(repository->Names()->empty());
}

TEST_F(ModelRepositoryTest, TheModelsOwnDirectoryMayBeMounted) {
  fs::create_directories(root_ / "own");
  Write("archive/model/config.pbtxt", "backend: \"identity\"\n");
  Write("archive/model/1/f");
  Write("archive/model/2/f");
  const auto repository = Open({.roots = {root_ / "own"}, .config_name = ""});
  ASSERT_TRUE(repository->Mount("served", root_ / "archive/model").ok());
  EXPECT_TRUE(fs::equivalent(repository->Find("served").at(0).directories.at(0), root_ / "archive/model"));
  EXPECT_TRUE(repository->Find("1").empty()) << "a version is no model";
}

TEST_F(ModelRepositoryTest, AmongSeveralDirectoriesTheNamedOneOrTheEnsembleIsMounted) {
  fs::create_directories(root_ / "own");
  Write("r/a/config.pbtxt", kConfig);
  Write("r/b/config.pbtxt", kConfig);
  const auto repository = Open({.roots = {root_ / "own"}, .config_name = ""});
  EXPECT_THAT(std::string(MessageOf(repository->Mount("m", root_ / "r"))),
              HasSubstr("found 2 model directories and 0 ensembles"));
  ASSERT_TRUE(repository->Mount("a", root_ / "r").ok());
  EXPECT_TRUE(fs::equivalent(repository->Find("a").at(0).directories.at(0), root_ / "r/a"));
  Write("r/e/config.pbtxt", "platform: \"ensemble\"\n");
  ASSERT_TRUE(repository->Mount("m", root_ / "r").ok());
  EXPECT_TRUE(fs::equivalent(repository->Find("m").at(0).directories.at(0), root_ / "r/e"));
  EXPECT_EQ(repository->Find("b").size(), 1U) << "members are found by their own names";
}

TEST_F(ModelRepositoryTest, OnlyDirectoriesWithModelsAreMounted) {
  Write("file");
  const auto repository = Open();
  for (const fs::path& root : {root_ / "file", root_ / "missing", fs::path("relative"), fs::path("/proc/self"),
                               fs::path("/dev"), fs::path("/sys/../dev")}) {
    EXPECT_EQ(repository->Mount("m", root).code(), absl::StatusCode::kInvalidArgument) << root;
  }
  EXPECT_EQ(repository->Mount("../m", root_).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ModelRepositoryTest, TheSameNameInTwoRootsIsADuplicateUnlessNamespaced) {
  Write("r1/m/config.pbtxt", kConfig);
  Write("r2/m/config.pbtxt", kConfig);
  fs::create_directories(root_ / "r1/m/1");
  const auto plain = Open({.roots = {root_ / "r1", root_ / "r2", root_ / "r1"}, .config_name = ""});
  const auto names = plain->Names();
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 1U);
  EXPECT_TRUE((*names)[0].duplicate());
  EXPECT_EQ(ErrorOf(plain->Resolve("m")), "failed to poll model 'm': not unique across all model repositories");

  const auto spaced = Open({.roots = {root_ / "r1", root_ / "r2"}, .config_name = "", .namespacing = true});
  EXPECT_EQ(spaced->Names()->size(), 2U);
  EXPECT_EQ(spaced->Find("m").size(), 2U);
  EXPECT_THAT(ErrorOf(spaced->Resolve("m")), StartsWith("There are 2 identifiers of model 'm' in global map"));
  const auto source = spaced->Resolve("m", {}, (root_ / "r1").string());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->model_namespace, (root_ / "r1").string());
  EXPECT_THAT(source->versions, ElementsAre(1));
}

TEST_F(ModelRepositoryTest, ResolveCompletesAndNormalises) {
  Write("m/1/model.onnx");
  Write("m/3/model.onnx");
  const auto source = Open()->Resolve("m");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->config.name(), "m");
  EXPECT_EQ(source->config.backend(), "onnxruntime");
  EXPECT_EQ(PlatformOf(source->config), "onnxruntime_onnx");
  EXPECT_EQ(source->config.version_policy().latest().num_versions(), 1U);
  EXPECT_THAT(source->versions, ElementsAre(3));
  EXPECT_FALSE(source->config_from_override);
  EXPECT_TRUE(source->config.instance_group().empty());
}

TEST_F(ModelRepositoryTest, MissingModelsAndBadNamesAreRefused) {
  const auto repository = Open();
  EXPECT_EQ(ErrorOf(repository->Resolve("m")), "failed to poll model 'm': model not found in any model repository.");
  EXPECT_EQ(ErrorOf(repository->Resolve("")), "Model name cannot be empty. Please enter a valid name to deploy.");
  EXPECT_EQ(ErrorOf(repository->Resolve("a/b")),
            "invalid model name 'a/b', model name must not contain path traversal characters");
  EXPECT_FALSE(ValidateLoadName(" .. ").ok());
  EXPECT_FALSE(ValidateLoadName(" \t").ok());
  EXPECT_TRUE(ValidateLoadName("..m").ok());
}

TEST_F(ModelRepositoryTest, AConfigurationIsRequiredWithoutAutoCompletionOnly) {
  Write("m/1/model.onnx");
  RepositoryOptions strict{.roots = {root_}, .config_name = "", .namespacing = false, .auto_complete = false};
  EXPECT_EQ(ErrorOf(Open(strict)->Resolve("m")),
            "failed to open text file for read " + (root_ / "m/config.pbtxt").string() + ": No such file or directory");
  Write("m/config.pbtxt", "input { name: \"X\" }");
  EXPECT_THAT(ErrorOf(Open(strict)->Resolve("m")), StartsWith("model input 'X' must specify 'data_type' for m"));
  EXPECT_TRUE(Open()->Resolve("m").ok());
}

TEST_F(ModelRepositoryTest, ParseErrorsNameTheFile) {
  Write("m/config.pbtxt", "backend: \"identity\"\nmax_batch_size: }");
  EXPECT_THAT(ErrorOf(Open()->Resolve("m")),
              HasSubstr("failed to read text proto from " + (root_ / "m/config.pbtxt").string()));
  EXPECT_THAT(ErrorOf(Open()->Resolve("m")), HasSubstr("config.pbtxt:2:17: "));
}

TEST_F(ModelRepositoryTest, TheNameInsideMustBeTheDirectorys) {
  Write("m/config.pbtxt", "name: \"other\" backend: \"identity\"");
  EXPECT_EQ(ErrorOf(Open()->Resolve("m")),
            "unexpected directory name 'm' for model 'other', directory name must equal model name\n" +
                (root_ / "m/config.pbtxt").string() +
                ":1:7: name: found \"other\", expected \"m\", as the directory is named; write: name: \"m\"");
}

TEST_F(ModelRepositoryTest, ACustomConfigurationIsPreferredWhereItExists) {
  Write("m/config.pbtxt", kConfig);
  Write("m/configs/fast.pbtxt", "backend: \"identity\" max_batch_size: 7");
  Write("n/config.pbtxt", kConfig);
  const auto repository = Open({.roots = {root_}, .config_name = "fast"});
  EXPECT_EQ(repository->Resolve("m")->config.max_batch_size(), 7);
  EXPECT_EQ(repository->Resolve("n")->config.max_batch_size(), 0);
}

TEST_F(ModelRepositoryTest, AnOverrideReplacesTheFileWhollyAndBadOnesSaySo) {
  Write("m/config.pbtxt", "backend: \"identity\" max_batch_size: 7");
  fs::create_directories(root_ / "m/1");
  const auto repository = Open();
  const auto source = repository->Resolve("m", {.config_json = R"({"backend":"identity"})", .files = {}});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->config.max_batch_size(), 0);
  EXPECT_TRUE(source->config_from_override);
  EXPECT_THAT(ErrorOf(repository->Resolve("m", {.config_json = "{", .files = {}})),
              StartsWith("Invalid config override: "));
}

TEST_F(ModelRepositoryTest, OddVersionDirectoriesAreIgnoredWithAWarning) {
  Write("m/config.pbtxt", "backend: \"identity\" version_policy { all { } }");
  for (const char* name : {"0", "2", "10", "003", "1abc", "-5", "abc", "99999999999999999999", "warmup", "configs",
                           "initial_state", ".git"}) {
    fs::create_directories(root_ / "m" / name);
  }
  Write("m/4", "a file is no version");
  const auto source = Open()->Resolve("m");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT(source->versions, ElementsAre(0, 2, 10));
  std::vector<std::string> texts;
  for (const Finding& finding : source->warnings) texts.push_back(finding.message);
  EXPECT_THAT(texts,
              ElementsAre("ignore version directory '-5' which fails to convert to integral number",
                          "ignore version directory '003' which contains leading zeros in its directory name",
                          "ignore version directory '1abc' which fails to convert to integral number",
                          "ignore version directory '99999999999999999999' which fails to convert to integral number",
                          "ignore version directory 'abc' which fails to convert to integral number"));
}

TEST_F(ModelRepositoryTest, PoliciesSelectVersions) {
  inference::ModelConfig config;
  config.set_name("m");
  config.mutable_version_policy()->mutable_latest()->set_num_versions(2);
  EXPECT_THAT(SelectVersions(config, {1, 5, 9}).versions, ElementsAre(5, 9));
  config.mutable_version_policy()->mutable_latest()->set_num_versions(0);
  EXPECT_THAT(SelectVersions(config, {1, 5, 9}).versions, IsEmpty());
  config.mutable_version_policy()->mutable_specific()->add_versions(9);
  config.mutable_version_policy()->mutable_specific()->add_versions(1);
  config.mutable_version_policy()->mutable_specific()->add_versions(3);
  const VersionSelection selection = SelectVersions(config, {1, 5, 9});
  EXPECT_THAT(selection.versions, ElementsAre(1, 9));
  ASSERT_EQ(selection.errors.size(), 1U);
  EXPECT_EQ(selection.errors[0].message,
            "version 3 is specified for model 'm', but the version directory is not present");
}

TEST_F(ModelRepositoryTest, ArtifactsAreFilesOrDirectoriesWithTheFileInside) {
  Write("m/1/model.onnx");
  Write("m/2/model.onnx/model.onnx");
  fs::create_directories(root_ / "m/3/model.onnx");
  fs::create_directories(root_ / "m/4");
  inference::ModelConfig config;
  config.set_name("m");
  const auto path = [&](std::int64_t version) {
    return ArtifactPath(root_ / "m", version, config, "model.onnx", true);
  };
  EXPECT_EQ(path(1).value(), root_ / "m/1/model.onnx");
  EXPECT_EQ(path(2).value(), root_ / "m/2/model.onnx/model.onnx");
  EXPECT_EQ(path(3).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(HeadOf(path(4).status()), "failed to stat file " + (root_ / "m/4/model.onnx").string());
  for (const char* name : {"../1/model.onnx", "/etc/passwd", "a/../../x", "."}) {
    config.set_default_model_filename(name);
    EXPECT_EQ(path(1).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST_F(ModelRepositoryTest, LabelsAreLinesOfAFileInsideTheModel) {
  Write("m/labels.txt", "cat\r\n\ndog");
  inference::ModelOutput output;
  output.set_name("O");
  EXPECT_THAT(*ReadLabels(root_ / "m", "m", output), IsEmpty());
  output.set_label_filename("labels.txt");
  EXPECT_THAT(*ReadLabels(root_ / "m", "m", output), ElementsAre("cat", "", "dog"));
  output.set_label_filename("../m/labels.txt");
  EXPECT_EQ(MessageOf(ReadLabels(root_ / "m", "m", output).status()),
            "label file path '../m/labels.txt' for output 'O' in model 'm' is outside model directory");
  output.set_label_filename("none.txt");
  EXPECT_EQ(ReadLabels(root_ / "m", "m", output).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelRepositoryTest, StampsTellConfigurationVersionsAndTheRestApart) {
  Write("m/config.pbtxt", kConfig);
  Write("m/1/model.onnx", "a");
  Write("m/2/deep/er/file", "a");
  const ModelStamp before = StampOf(root_ / "m");
  EXPECT_EQ(StampOf(root_ / "m"), before);

  Write("m/2/deep/er/file", "ab");
  const ModelStamp edited = StampOf(root_ / "m");
  EXPECT_NE(edited, before);
  EXPECT_TRUE(edited.SameVersionFiles(before, 1));
  EXPECT_FALSE(edited.SameVersionFiles(before, 2));
  EXPECT_EQ(edited.config, before.config);

  Write("m/config.pbtxt", "backend: \"other\"");
  EXPECT_NE(StampOf(root_ / "m").config, edited.config);
  EXPECT_TRUE(StampOf(root_ / "m").SameVersionFiles(edited, 2));

  Write("m/.config.pbtxt.swp", "x");
  EXPECT_FALSE(StampOf(root_ / "m").SameVersionFiles(edited, 2));
}

TEST_F(ModelRepositoryTest, AReplacedFileOfTheSameSizeAndTimeIsNoticed) {
  Write("m/1/model.onnx", "aaaa");
  const auto time = fs::last_write_time(root_ / "m/1/model.onnx");
  const ModelStamp before = StampOf(root_ / "m");
  Write("m/1/new", "bbbb");
  fs::rename(root_ / "m/1/new", root_ / "m/1/model.onnx");
  fs::last_write_time(root_ / "m/1/model.onnx", time);
  EXPECT_FALSE(StampOf(root_ / "m").SameVersionFiles(before, 1));
}

TEST_F(ModelRepositoryTest, SymbolicLinksInACircleEnd) {
  fs::create_directories(root_ / "m/1");
  fs::create_directory_symlink(root_ / "m", root_ / "m/1/again");
  EXPECT_EQ(StampOf(root_ / "m"), StampOf(root_ / "m"));
  EXPECT_EQ(StampOf(root_ / "nowhere"), StampOf(root_ / "nowhere"));
}

TEST_F(ModelRepositoryTest, OverrideFilesStayInsideTheDirectory) {
  const auto check = [](const std::map<std::string, std::string>& files) {
    return std::string(MessageOf(ValidateOverridePaths({.config_json = "{}", .files = files})));
  };
  EXPECT_EQ(check({{"1/model.onnx", "x"}, {"labels.txt", ""}}), "");
  EXPECT_EQ(check({{"1/../../x", ""}}),
            "Invalid file parameter 'file:1/../../x' with normalized path '../x' must stay within model "
            "directory.");
  EXPECT_THAT(check({{"/etc/x", ""}}), HasSubstr("must stay within model directory."));
  EXPECT_EQ(check({{"1", ""}, {"1/model.onnx", ""}}),
            "Invalid file parameter 'file:1/model.onnx', directory has been created as a file");
  EXPECT_NE(check({{"", ""}}), "");
  EXPECT_NE(check({{".", ""}}), "");
  EXPECT_NE(check({{"1/", ""}}), "");
  EXPECT_NE(check({{"1/a", ""}, {"1/./a", ""}}), "");
  EXPECT_NE(check({{std::string("a\0b", 3), ""}}), "");
  EXPECT_NE(check({{std::string(300, 'a'), ""}}), "");
  EXPECT_EQ(MessageOf(ValidateOverridePaths({.config_json = std::nullopt, .files = {{"1/a", ""}}})),
            "Load parameter 'config' must be specified for model file override");
}

TEST_F(ModelRepositoryTest, WrittenOverridesResolveInTheirDirectory) {
  const LoadOverrides overrides{.config_json = R"({"backend":"identity"})",
                                .files = {{"1/model.bin", std::string("a\0b", 3)}, {"2/sub/x", ""}}};
  fs::create_directories(root_ / "tmp");
  ASSERT_TRUE(WriteOverrideFiles(overrides, root_ / "tmp").ok());
  EXPECT_EQ(*ReadFile(root_ / "tmp/1/model.bin", "file"), std::string("a\0b", 3));
  const auto source = Open()->ResolveIn("absent", "", root_ / "tmp", overrides);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->name, "absent");
  EXPECT_EQ(source->directory, root_ / "tmp");
  EXPECT_THAT(source->versions, ElementsAre(2));
  EXPECT_FALSE(WriteOverrideFiles(overrides, root_ / "tmp/1/model.bin").ok());
}

TEST_F(ModelRepositoryTest, ReadFileRefusesWhatIsNoFile) {
  EXPECT_EQ(ReadFile(root_, "text file").status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReadFile(root_ / "none", "text file").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelRepositoryTest, ConcurrentEditsLeadToAnAnswerOrAnErrorButNeverToACrash) {
  const auto repository = Open();
  std::atomic<bool> done = false;
  std::thread editor([&] {
    for (int i = 0; i < 300; ++i) {
      std::error_code error;
      fs::create_directories(root_ / "m/1/model.onnx", error);
      std::ofstream(root_ / "m/config.pbtxt") << kConfig;
      fs::rename(root_ / "m/1", root_ / "m/2", error);
      fs::remove_all(root_ / "m", error);
    }
    done = true;
  });
  while (!done) {
    const auto names = repository->Names();
    const auto source = repository->Resolve("m");
    if (source.ok()) {
      EXPECT_EQ(source->config.name(), "m");
    }
    (void)StampOf(root_ / "m");
  }
  editor.join();
}

}  // namespace
}  // namespace tidemark
