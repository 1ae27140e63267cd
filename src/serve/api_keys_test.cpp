// SPDX-License-Identifier: Apache-2.0
#include "serve/api_keys.h"

#include <gtest/gtest.h>

namespace tandem::serve {
namespace {

// printf %s sk-test | sha256sum
constexpr const char* kDigestOfSkTest =
    "f3abf2a6cc4f00987743db5f544ba345b4899ae31f326d8ee9c4816de153c9e0";

ApiKeys keys_of(const std::vector<std::string>& entries) {
  auto keys = ApiKeys::open(entries);
  EXPECT_TRUE(keys.ok());
  return std::move(keys).value();
}

TEST(ApiKeys, FindsAKeyAndItsTenant) {
  const ApiKeys keys = keys_of({"sk-one", "sk-two"});
  const auto one = keys.tenant_of("Bearer sk-one"), two = keys.tenant_of("bearer sk-two");
  ASSERT_TRUE(one && two);
  EXPECT_NE(*one, *two);
  EXPECT_NE(*one, 0u);
}

TEST(ApiKeys, ADigestIsAsGoodAsItsKey) {
  const ApiKeys by_digest = keys_of({std::string("sha256:") + kDigestOfSkTest});
  const ApiKeys by_key = keys_of({"sk-test"});
  ASSERT_TRUE(by_digest.tenant_of("Bearer sk-test"));
  EXPECT_EQ(by_digest.tenant_of("Bearer sk-test"), by_key.tenant_of("Bearer sk-test"));
}

TEST(ApiKeys, RefusesEverythingElse) {
  const ApiKeys keys = keys_of({"sk-one"});
  for (const char* value : {"", "Bearer", "Bearer ", "Bearer  sk-one", "Bearer sk-one ",
                            "Bearer sk-onf", "Bearer sk-on", "Bearer sk-one1", "Basic sk-one",
                            "sk-one", "BearerXsk-one", "Bearer sk-\xc3\xb6ne", "Bearer sk-one\t",
                            "Bearer SK-ONE", "Bearer sk-one, Bearer sk-one"}) {
    EXPECT_FALSE(keys.tenant_of(value)) << value;
  }
  EXPECT_FALSE(keys.tenant_of("Bearer " + std::string(64 * 1024, 'k')));
  EXPECT_FALSE(ApiKeys().tenant_of("Bearer sk-one"));
}

TEST(ApiKeys, NamesABadEntryByNumberOnly) {
  for (const std::string& bad : {std::string(), std::string("with space"), std::string("t\xc3\xb6"),
                                 std::string("sha256:12"), "sha256:" + std::string(64, 'g'),
                                 std::string(ApiKeys::kKeyBytesMax + 1, 'k')}) {
    const std::vector<std::string> entries = {"good", bad};
    const auto keys = ApiKeys::open(entries);
    ASSERT_FALSE(keys.ok()) << bad;
    EXPECT_EQ(keys.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(keys.error().text.find("API key 2"), std::string::npos);
    if (bad.size() > 3) {
      EXPECT_EQ(keys.error().text.find(bad), std::string::npos);
    }
  }
  EXPECT_FALSE(ApiKeys::open(std::vector<std::string>(ApiKeys::kKeysMax + 1, "k")).ok());
}

}  // namespace
}  // namespace tandem::serve
