// SPDX-License-Identifier: Apache-2.0
#include "text/detokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/rng.h"
#include "text/small_vocabulary.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

Tokenizer make_tokenizer() {
  const SmallVocabulary vocabulary{
      .merges = {{"\xF0", "\x9F"}, {"\x98", "\x80"}, {"\xC3", "\xA9"}, {"a", "\xC3"}}};
  return Tokenizer::parse(to_json(vocabulary), "t").value();
}

TEST(Detokenizer, WaitsForWholeCharacters) {
  const Tokenizer tokenizer = make_tokenizer();
  Detokenizer detokenizer(tokenizer, true);
  std::string out;
  detokenizer.push(256, out);  // F0 9F
  EXPECT_EQ(out, "");
  detokenizer.push(0x98, out);
  EXPECT_EQ(out, "");
  detokenizer.push(0x80, out);
  EXPECT_EQ(out, "\U0001F600");
  detokenizer.push(259, out);  // a C3
  EXPECT_EQ(out, "\U0001F600a");
  detokenizer.finish(out);
  EXPECT_EQ(out, "\U0001F600a\uFFFD");
  detokenizer.finish(out);
  EXPECT_EQ(out, "\U0001F600a\uFFFD") << "a second finish adds nothing";
}

TEST(Detokenizer, PiecesAreWholeCharactersAndJoinToDecode) {
  const Tokenizer tokenizer = make_tokenizer();
  Rng rng(1);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<int32_t> ids;
    for (uint64_t k = rng.below(30); k > 0; --k) {
      // Bytes that begin and continue sequences, tokens, specials, ids that do not exist.
      const int32_t choices[] = {static_cast<int32_t>(rng.between(0x80, 0xFF)),
                                 static_cast<int32_t>(rng.between(0x80, 0xBF)),
                                 static_cast<int32_t>(rng.between(0xE0, 0xF4)),
                                 static_cast<int32_t>(rng.between(0, tokenizer.vocab_size() + 2)),
                                 256,
                                 257,
                                 -1};
      ids.push_back(choices[rng.below(std::size(choices))]);
    }
    for (const bool skip_special : {false, true}) {
      Detokenizer detokenizer(tokenizer, skip_special);
      std::string all;
      for (const int32_t id : ids) {
        std::string piece;
        detokenizer.push(id, piece);
        ASSERT_TRUE(is_valid_utf8(piece));
        all += piece;
      }
      detokenizer.finish(all);
      ASSERT_EQ(all, tokenizer.decode(ids, skip_special));
    }
  }
}

std::string shown_until_stop(std::vector<std::string> stops, std::string_view text, Rng& rng,
                             bool& stopped) {
  StopMatcher matcher(std::move(stops));
  std::string out;
  stopped = false;
  while (!text.empty() && !stopped) {
    const size_t bytes = 1 + rng.below(std::min<size_t>(text.size(), 4));
    const std::string before = out;
    stopped = matcher.push(text.substr(0, bytes), out);
    EXPECT_TRUE(out.starts_with(before));
    text.remove_prefix(bytes);
  }
  if (!stopped) matcher.finish(out);
  return out;
}

TEST(StopMatcher, HoldsBackAndCuts) {
  StopMatcher matcher({"STOP", "\n\n"});
  std::string out;
  EXPECT_FALSE(matcher.push("abcST", out));
  EXPECT_EQ(out, "abc");
  EXPECT_FALSE(matcher.push("OR", out));
  EXPECT_EQ(out, "abcSTOR");
  EXPECT_FALSE(matcher.push("S", out));
  EXPECT_TRUE(matcher.push("TOP and more", out));
  EXPECT_EQ(out, "abcSTOR");
}

// Whatever the cuts, the text ends before the stop string that is complete first, the longest of
// those that end there.
TEST(StopMatcher, EqualsASearchInTheWholeText) {
  Rng rng(2);
  for (int i = 0; i < 20'000; ++i) {
    const auto word = [&rng](uint64_t length) {
      std::string out;
      for (uint64_t k = 0; k < length; ++k) out += static_cast<char>('a' + rng.below(2));
      return out;
    };
    std::vector<std::string> stops;
    for (uint64_t k = rng.below(3); k > 0; --k) stops.push_back(word(1 + rng.below(6)));
    const std::string text = word(rng.below(30));
    size_t begin = std::string::npos;
    for (size_t end = 1; end <= text.size() && begin == std::string::npos; ++end) {
      for (const std::string& stop : stops) {
        if (std::string_view(text).substr(0, end).ends_with(stop)) {
          begin = std::min(begin, end - stop.size());
        }
      }
    }
    bool stopped = false;
    const std::string shown = shown_until_stop(stops, text, rng, stopped);
    ASSERT_EQ(stopped, begin != std::string::npos) << text << " " << testing::PrintToString(stops);
    ASSERT_EQ(shown, text.substr(0, begin)) << text << " " << testing::PrintToString(stops);
  }
}

}  // namespace
}  // namespace tandem::text
