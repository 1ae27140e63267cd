// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>

#include "core/rng.h"
#include "text/nfc.h"
#include "text/small_vocabulary.h"
#include "text/splitter.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

using testing::ElementsAre;
using Ids = std::vector<int32_t>;

Tokenizer make(const SmallVocabulary& vocabulary) {
  auto tokenizer = Tokenizer::parse(to_json(vocabulary), "tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().text);
  return std::move(tokenizer).value();
}

// A text of characters whose classes and case folding Unicode 14 (PCRE2) and 16 agree on.
std::string random_text(Rng& rng, size_t characters) {
  static constexpr std::pair<uint32_t, uint32_t> kRanges[] = {
      {0x09, 0x0D},     {0x20, 0x7E},     {0x20, 0x27},     {'a', 'z'},        {0x80, 0x24F},
      {0x300, 0x36F},   {0x400, 0x4FF},   {0x900, 0x97F},   {0x1100, 0x11FF},  {0x2000, 0x206F},
      {0x3040, 0x3096}, {0x4E00, 0x4E40}, {0xAC00, 0xAC40}, {0x1F600, 0x1F64F}};
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    const auto [first, last] = kRanges[rng.below(std::size(kRanges))];
    const auto c = static_cast<uint32_t>(rng.between(first, last));
    const auto count = rng.below(8) == 0 ? rng.below(6) : 1;
    for (uint64_t k = 0; k < count; ++k) append_code_point(c, text);
  }
  return text;
}

TEST(Tokenizer, MergesTheLowestRankFirstAndTheLeftmostOfEquals) {
  const SmallVocabulary vocabulary{.merges = {{"b", "c"}, {"a", "b"}, {"a", "a"}, {"bc", "d"}}};
  const Tokenizer tokenizer = make(vocabulary);
  EXPECT_THAT(tokenizer.encode("abc", Specials::kParse), ElementsAre('a', 256));
  EXPECT_THAT(tokenizer.encode("aaa", Specials::kParse), ElementsAre(258, 'a'));
  EXPECT_THAT(tokenizer.encode("abcd", Specials::kParse), ElementsAre('a', 259));
  EXPECT_THAT(tokenizer.encode("", Specials::kParse), ElementsAre());
}

TEST(Tokenizer, ReadsBothSpellingsOfMerges) {
  SmallVocabulary vocabulary{.merges = {{" ", "a"}, {"\n", "\n"}, {"\xC3", "\xA9"}}};
  const Ids lines = make(vocabulary).encode("x a\n\n\xC3\xA9", Specials::kParse);
  vocabulary.merges_as_pairs = true;
  EXPECT_EQ(make(vocabulary).encode("x a\n\n\xC3\xA9", Specials::kParse), lines);
  EXPECT_THAT(lines, ElementsAre('x', 256, 257, 258));
}

// "abc" is a token that no merges lead to: only ignore_merges finds it.
TEST(Tokenizer, FindsATokenThatMergesMissOnlyWithIgnoreMerges) {
  SmallVocabulary vocabulary{.merges = {{"b", "c"}, {"a", "b"}, {"ab", "c"}}};
  EXPECT_THAT(make(vocabulary).encode("abc", Specials::kParse), ElementsAre('a', 256));
  vocabulary.ignore_merges = true;
  EXPECT_THAT(make(vocabulary).encode("abc", Specials::kParse), ElementsAre(258));
}

TEST(Tokenizer, SpecialTokensOfUsersStayText) {
  const Tokenizer tokenizer = make({});
  const std::string text = "a<|im_end|><think>";
  EXPECT_THAT(tokenizer.encode(text, Specials::kParse), ElementsAre('a', 257, 258));
  const Ids plain = tokenizer.encode(text, Specials::kPlain);
  EXPECT_EQ(plain.size(), 1 + std::string("<|im_end|>").size() + 1);
  EXPECT_EQ(plain.back(), 258) << "added tokens that aren't special are still found";
  EXPECT_EQ(tokenizer.decode(plain, true), text);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, Specials::kParse), true), "a<think>");
}

TEST(Tokenizer, TakesTheLongestAddedTokenAtAPlace) {
  const Tokenizer tokenizer = make({.added = {{"<a", true}, {"<ab>", true}, {"<abc", false}}});
  EXPECT_THAT(tokenizer.encode("<ab><abc<<ab", Specials::kParse),
              ElementsAre(257, 258, '<', 256, 'b'));
}

TEST(Tokenizer, AnswersQuestionsAboutTokens) {
  const Tokenizer tokenizer = make({});
  EXPECT_EQ(tokenizer.vocab_size(), 259);
  EXPECT_EQ(tokenizer.find_added("<|im_end|>"), 257);
  EXPECT_EQ(tokenizer.find_added("<|im_end|"), std::nullopt);
  EXPECT_EQ(tokenizer.find_added(""), std::nullopt);
  EXPECT_EQ(tokenizer.find_added("x<|im_end|>"), std::nullopt);
  EXPECT_THAT(tokenizer.special_strings(), ElementsAre("<|im_start|>", "<|im_end|>"));
  EXPECT_TRUE(tokenizer.is_special(256));
  EXPECT_FALSE(tokenizer.is_special(258));
  for (const int32_t id : {-1, 259, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer.token_bytes(id), "");
    EXPECT_FALSE(tokenizer.is_special(id));
  }
}

TEST(Tokenizer, ReplacesInvalidUtf8AsPythonDoes) {
  const Tokenizer tokenizer = make({});
  const auto through = [&](std::string_view bytes) {
    return tokenizer.decode(tokenizer.encode(bytes, Specials::kParse), false);
  };
  EXPECT_EQ(through("a\xFF"), "a\uFFFD");
  EXPECT_EQ(through("\xE2\x82"), "\uFFFD");
  EXPECT_EQ(through("\xE2\x82z"), "\uFFFDz");
  EXPECT_EQ(through("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(through("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(through("\xF0\x9F\x98z"), "\uFFFDz");
  EXPECT_EQ(through("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Nfc, ComposesAndOrdersMarks) {
  const UnicodeData unicode;
  EXPECT_EQ(to_nfc(unicode, "e\u0301"), "\u00E9");
  EXPECT_EQ(to_nfc(unicode, "a\u0301\u0323"), "\u1EA1\u0301");
  EXPECT_EQ(to_nfc(unicode, "\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(to_nfc(unicode, "\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(to_nfc(unicode, "\u0958"), "\u0915\u093C") << "a composition exclusion";
  EXPECT_EQ(to_nfc(unicode, "\u212B"), "\u00C5") << "a singleton";
  EXPECT_TRUE(is_surely_nfc(unicode, "plain ASCII, caf\u00E9, \u4E2D\u6587, \uAC01"));
  EXPECT_FALSE(is_surely_nfc(unicode, "long enough for words of eight bytes e\u0301"));
}

TEST(Nfc, QuickCheckNeverPassesWhatNfcChanges) {
  const UnicodeData unicode;
  Rng rng(7);
  int changed = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = random_text(rng, 1 + rng.below(12));
    const std::string normal = to_nfc(unicode, text);
    if (is_surely_nfc(unicode, text)) {
      EXPECT_EQ(normal, text);
    }
    EXPECT_EQ(to_nfc(unicode, normal), normal);
    changed += normal != text ? 1 : 0;
  }
  EXPECT_GT(changed, 100);
}

// The hand-written scanner against the regular expression itself.
TEST(Splitter, QwenScannerCutsWherePcre2Cuts) {
  const UnicodeData unicode;
  for (const std::string_view pattern : {kQwen3Pattern, kQwen35Pattern}) {
    const auto pcre = PcreSplit::compile(pattern);
    ASSERT_TRUE(pcre.ok());
    const auto splitter = Splitter::make(unicode, pattern);
    ASSERT_TRUE(splitter.ok());
    Rng rng(11);
    for (int i = 0; i < 20'000; ++i) {
      std::string text = random_text(rng, 1 + rng.below(20));
      if (rng.below(4) == 0) text += "'\u017F don'T I'll we'Re\r\n \n x";
      std::vector<size_t> expected;
      ASSERT_TRUE(pcre->piece_ends(text, expected));
      std::vector<size_t> ends;
      size_t at = 0;
      splitter->for_each_piece(text,
                               [&](std::string_view piece) { ends.push_back(at += piece.size()); });
      ASSERT_EQ(ends, expected) << testing::PrintToString(text);
    }
  }
}

TEST(Splitter, RefusesPatternsThatExplode) {
  const UnicodeData unicode;
  for (const std::string_view pattern : {"(a+)+$", "(a|aa)+$"}) {
    const auto splitter = Splitter::make(unicode, pattern);
    ASSERT_FALSE(splitter.ok()) << pattern;
    EXPECT_EQ(splitter.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(splitter.error().text, testing::HasSubstr("more steps than allowed"));
  }
}

// One pass after the other over all symbols: slow, and plainly the definition.
Ids merge_naively(const std::string& piece, const std::map<std::pair<int, int>, int>& ranks) {
  Ids ids;
  for (const char c : piece) ids.push_back(static_cast<uint8_t>(c));
  for (;;) {
    int best = INT32_MAX;
    size_t at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == INT32_MAX) return ids;
    ids[at] = 256 + best;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, EqualsNaiveMergingForShortAndLongPieces) {
  Rng rng(3);
  for (int round = 0; round < 20; ++round) {
    SmallVocabulary vocabulary;
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::map<std::string, int> id_of = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
    std::map<std::pair<int, int>, int> ranks;
    while (vocabulary.merges.size() < 40) {
      const std::string left = tokens[rng.below(tokens.size())];
      const std::string right = tokens[rng.below(tokens.size())];
      if (left.size() + right.size() > 20 || id_of.contains(left + right)) continue;
      const auto rank = static_cast<int>(vocabulary.merges.size());
      ranks[{id_of[left], id_of[right]}] = rank;
      id_of[left + right] = 256 + rank;
      tokens.push_back(left + right);
      vocabulary.merges.emplace_back(left, right);
    }
    const Tokenizer tokenizer = make(vocabulary);
    for (int i = 0; i < 200; ++i) {
      std::string piece;
      const uint64_t length = 1 + rng.below(i % 2 == 0 ? 64 : 300);
      while (piece.size() < length) piece += static_cast<char>('a' + rng.below(3));
      ASSERT_EQ(tokenizer.encode(piece, Specials::kParse), merge_naively(piece, ranks)) << piece;
    }
  }
}

class RealVocabulary : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path path =
        std::filesystem::path(TANDEM_QWEN3_TOKENIZER) / "tokenizer.json";
    if (std::string_view(TANDEM_QWEN3_TOKENIZER).empty() || !std::filesystem::exists(path)) {
      GTEST_SKIP() << "the published Qwen3 vocabulary is not on this machine (CMake setting "
                      "TANDEM_QWEN3_TOKENIZER)";
    }
    auto loaded = Tokenizer::load(path);
    ASSERT_TRUE(loaded.ok()) << loaded.error().text;
    tokenizer_.emplace(std::move(loaded).value());
  }
  std::optional<Tokenizer> tokenizer_;
};

// Ids as printed by tokenizers 0.23.3.
TEST_F(RealVocabulary, KnownIds) {
  EXPECT_EQ(tokenizer_->vocab_size(), 151669);
  EXPECT_THAT(tokenizer_->encode("Hello, world!", Specials::kParse),
              ElementsAre(9707, 11, 1879, 0));
  EXPECT_THAT(tokenizer_->encode("<|im_start|>user\n", Specials::kParse),
              ElementsAre(151644, 872, 198));
  EXPECT_EQ(tokenizer_->special_strings().size(), 14U);
  EXPECT_EQ(tokenizer_->find_added("<|im_end|>"), 151645);
}

TEST_F(RealVocabulary, DecodeGivesBackWhatNfcLeavesAlone) {
  const UnicodeData unicode;
  Rng rng(5);
  for (int i = 0; i < 5'000; ++i) {
    const std::string text = to_nfc(unicode, random_text(rng, rng.below(40)));
    for (const Specials specials : {Specials::kParse, Specials::kPlain}) {
      ASSERT_EQ(tokenizer_->decode(tokenizer_->encode(text, specials), false), text);
    }
  }
}

// A megabyte that is one piece, or the worst for NFC. The bound is far above what a build
// with sanitizers needs and far below what a quadratic step would take.
TEST_F(RealVocabulary, AMegabyteOfOneThingTakesNoLong) {
  using std::chrono::steady_clock;
  const std::string unordered_marks = "\u0301\u0323\u0327\u0345";
  for (const std::string& unit :
       {std::string("a"), std::string(" "), std::string("\n"), std::string("."),
        std::string("\u4E2D"), std::string("Ab"), std::string("\u0301"), unordered_marks,
        std::string("<|im_"), std::string("\xFF"), std::string("'")}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const auto begin = steady_clock::now();
    const Ids ids = tokenizer_->encode(text, Specials::kPlain);
    EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(20))
        << testing::PrintToString(unit);
    EXPECT_FALSE(ids.empty());
  }
}

}  // namespace
}  // namespace tandem::text
