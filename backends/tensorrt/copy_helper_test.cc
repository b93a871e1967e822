#include "backends/tensorrt/copy_helper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/status.h"
#include "resource/ledger.h"
#include "tests/support/fault_platform.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

class CopyHelperTest : public ::testing::Test {
 protected:
  std::unique_ptr<Platform> real_ = CreateLinuxPlatform();
  FaultPlatform platform_{*real_};
  Ledger ledger_;
};

TEST_F(CopyHelperTest, EveryByteArrivesWhoeverCopiesIt) {
  Scope scope(ledger_, platform_, "test");
  const auto helper = CopyHelper::Create(scope);
  ASSERT_TRUE(helper.ok()) << helper.status();
  EXPECT_EQ(ledger_.Totals().rows, 1u);
  std::vector<std::byte> from(5 << 20);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 131 >> 3);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{262143}, std::size_t{262145}, from.size()}) {
    for (int round = 0; round < 50; ++round) {
      std::vector<std::byte> to(from.size() + 1, std::byte{0x5a});
      (*helper)->Copy(to.data(), from.data(), bytes);
      ASSERT_TRUE(std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(bytes), to.begin())) << bytes;
      ASSERT_EQ(to[bytes], std::byte{0x5a}) << "and not one more";
    }
  }
  std::vector<std::byte> to(from.size());
  while ((*helper)->shared_copies() == 0) (*helper)->Copy(to.data(), from.data(), from.size());
}

TEST_F(CopyHelperTest, TheThreadGoesWithItsScopeAndTheHelperMayGoBefore) {
  {
    Scope scope(ledger_, platform_, "test");
    { ASSERT_TRUE(CopyHelper::Create(scope).ok()); }
    EXPECT_EQ(ledger_.Totals().rows, 1u);
  }
  EXPECT_EQ(ledger_.Totals().rows, 0u);
  EXPECT_EQ(ledger_.stranded_rows(), 0u);
}

TEST_F(CopyHelperTest, AThreadThatIsRefusedLeavesNothing) {
  Scope scope(ledger_, platform_, "test");
  platform_.Arm(Fault::kOnce, 0);
  EXPECT_FALSE(CopyHelper::Create(scope).ok());
  EXPECT_EQ(ledger_.Totals().rows, 0u);
}

}  // namespace
}  // namespace tidemark
