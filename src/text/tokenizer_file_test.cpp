// SPDX-License-Identifier: Apache-2.0
// Every fault of a tokenizer.json gets an error that names the file and the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "text/small_vocabulary.h"
#include "text/tokenizer.h"
#include "text/tokenizer_file.h"

namespace tandem::text {
namespace {

using testing::HasSubstr;

struct Fault {
  std::string from, to;  // a change of the good file
  ErrorCode code;
  std::string message;  // part of the error
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.to.substr(0, 80);
}

SmallVocabulary small() {
  return {.merges = {{"a", "b"}, {"ab", "c"}}};
}

class TokenizerFault : public testing::TestWithParam<Fault> {};

TEST_P(TokenizerFault, IsRefusedByName) {
  const Fault& fault = GetParam();
  std::string json = to_json(small());
  const size_t at = json.find(fault.from);
  ASSERT_NE(at, std::string::npos) << fault.from;
  json.replace(at, fault.from.size(), fault.to);
  const auto tokenizer = Tokenizer::parse(json, "dir/tokenizer.json");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(error_code_name(tokenizer.error().code), error_code_name(fault.code))
      << tokenizer.error().text;
  EXPECT_THAT(tokenizer.error().text, HasSubstr(fault.message));
  EXPECT_THAT(tokenizer.error().text, HasSubstr("dir/tokenizer.json"));
  EXPECT_FALSE(tokenizer.error().param.empty());
}

constexpr auto kInvalid = ErrorCode::kInvalidArgument;
constexpr auto kUnsupported = ErrorCode::kUnsupported;

INSTANTIATE_TEST_SUITE_P(
    Tables, TokenizerFault,
    testing::Values(
        Fault{R"("a b")", R"("a zz")", kInvalid, "model.merges[0] names 'zz'"},
        Fault{R"("a b")", R"("b a")", kInvalid, "model.merges[0] names 'ba'"},
        Fault{R"("ab c")", R"("a b")", kInvalid, "model.merges[1] repeats"},
        Fault{R"("ab c")", R"("abc")", kInvalid, "one space between"},
        Fault{R"("ab c")", R"("a b c")", kInvalid, "one space between"},
        Fault{R"("ab c")", R"("")", kInvalid, "one space between"},
        Fault{R"("ab c")", R"(" abc")", kInvalid, "model.merges[1] names ''"},
        Fault{R"("ab c")", R"(["ab"])", kInvalid, "model.merges[1] must be"},
        Fault{R"("ab c")", R"(["ab",1])", kInvalid, "model.merges[1] must be"},
        Fault{R"("ab c")", R"(7)", kInvalid, "model.merges[1] must be"},
        Fault{R"("abc":257)", R"("abc":256)", kInvalid,
              "model.vocab['abc'] has the id 256 of 'ab'"},
        Fault{R"("abc":257)", R"("ab":257)", kInvalid, "model.vocab['ab'] stands there twice"},
        Fault{R"("abc":257)", R"("abc":-1)", kInvalid, "model.vocab['abc'] is -1"},
        Fault{R"("abc":257)", R"("abc":2147483648)", kInvalid, "is 2147483648"},
        Fault{R"("abc":257)", R"("abc":1e3)", kInvalid, "must be a whole number"},
        Fault{R"("abc":257)", R"("abc":"257")", kInvalid, "must be a whole number"},
        Fault{R"("abc":257)", R"("abc":99999)", kInvalid, "leave out"},
        Fault{R"("abc":257)", R"("abc":257,"":300)", kInvalid, "is an empty token"},
        Fault{R"("abc":257)", R"("abc":257,"x y":300)", kInvalid, "byte alphabet"},
        Fault{R"("a":97,)", "", kInvalid, "no token for the byte 0x61"},
        Fault{R"("merges":[)", R"("merges":{},"x":[)", kInvalid, "model.merges must be an array"},
        Fault{R"("vocab":{)", R"("vocab":[],"x":{)", kInvalid, "model.vocab must be an object"}));

INSTANTIATE_TEST_SUITE_P(
    Added, TokenizerFault,
    testing::Values(
        Fault{R"("content":"<|im_end|>")", R"("content":"")", kInvalid,
              "added_tokens[1].content is empty"},
        Fault{R"("content":"<|im_end|>")", R"("content":"<think>")", kInvalid, "'<think>'"},
        Fault{R"("content":"<|im_end|>")", R"("content":7)", kInvalid, "must be a string"},
        Fault{R"("content":"<|im_end|>")", "\"content\":\"" + std::string(300, '<') + "\"",
              kInvalid, "is longer than 256 bytes"},
        Fault{R"("id":259)", R"("id":258)", kInvalid, "added_tokens[1] has the id 258"},
        Fault{R"("id":259)", R"("id":97)", kInvalid, "added_tokens[1] has the id 97 of 'a'"},
        Fault{R"("id":259)", R"("id":2147483648)", kInvalid, "added_tokens[1].id is 2147483648"},
        Fault{R"("id":259,)", "", kInvalid, "added_tokens[1].id is missing"},
        Fault{R"("lstrip":false)", R"("lstrip":true)", kUnsupported,
              "added_tokens[0] ('<|im_start|>').lstrip true is not supported"},
        Fault{R"("rstrip":false)", R"("rstrip":true)", kUnsupported, ".rstrip true"},
        Fault{R"("single_word":false)", R"("single_word":true)", kUnsupported, ".single_word true"},
        Fault{R"("normalized":false)", R"("normalized":true)", kUnsupported, ".normalized true"},
        Fault{R"("special":true)", R"("special":1)", kInvalid, "special must be true or false"}));

INSTANTIATE_TEST_SUITE_P(
    Kinds, TokenizerFault,
    testing::Values(
        Fault{R"({"type":"NFC"})", R"({"type":"NFKC"})", kUnsupported, "normalizer.type 'NFKC'"},
        Fault{R"({"type":"NFC"})", R"(3)", kInvalid, "normalizer must be an object"},
        Fault{R"("type":"Sequence")", R"("type":"Metaspace")", kUnsupported, "'Metaspace'"},
        Fault{R"("type":"Split")", R"("type":"Digits")", kUnsupported,
              "pre_tokenizer.pretokenizers[0].type 'Digits'"},
        Fault{R"("Isolated")", R"("Removed")", kUnsupported, "behavior 'Removed'"},
        Fault{R"("invert":false)", R"("invert":true)", kUnsupported, "invert true"},
        Fault{R"("Regex":)", R"("String":)", kInvalid, "pattern.Regex must be a string"},
        Fault{R"("use_regex":false)", R"("use_regex":true)", kUnsupported, "use_regex true"},
        Fault{R"(,"use_regex":false)", "", kUnsupported, "use_regex true"},
        Fault{R"("add_prefix_space":false)", R"("add_prefix_space":true)", kUnsupported,
              "add_prefix_space true"},
        Fault{R"("decoder":{"type":"ByteLevel"})", R"("decoder":{"type":"WordPiece"})",
              kUnsupported, "decoder.type 'WordPiece'"},
        Fault{R"("decoder":{"type":"ByteLevel"})", R"("decoder":null)", kInvalid, "decoder"},
        Fault{R"("post_processor":null)", R"("post_processor":{"type":"TemplateProcessing"})",
              kUnsupported, "post_processor.type 'TemplateProcessing'"},
        Fault{R"("truncation":null)", R"("truncation":{"max_length":4})", kUnsupported,
              "truncation"},
        Fault{R"("padding":null)", R"("padding":{})", kUnsupported, "padding"},
        Fault{R"("type":"BPE")", R"("type":"Unigram")", kUnsupported, "model.type 'Unigram'"},
        Fault{R"("dropout":null)", R"("dropout":0.1)", kUnsupported, "model.dropout"},
        Fault{R"("unk_token":null)", R"("unk_token":"a")", kUnsupported, "model.unk_token"},
        Fault{R"("end_of_word_suffix":"")", R"("end_of_word_suffix":"_")", kUnsupported,
              "model.end_of_word_suffix"},
        Fault{R"("byte_fallback":false)", R"("byte_fallback":true)", kUnsupported,
              "model.byte_fallback true"},
        Fault{R"({"version")", R"([{"version")", kInvalid, "not valid JSON"},
        Fault{R"("version":"1.0")", "\"version\":\"\xFF\"", kInvalid, "not valid JSON"}));

TEST(TokenizerFile, RefusesPatternsByFileAndField) {
  for (const std::string_view pattern : {R"((a+)+$)", R"([)", R"(\p{Klingon}+)", R"((?R)))"}) {
    SmallVocabulary vocabulary;
    vocabulary.pattern = pattern;
    const auto tokenizer = Tokenizer::parse(to_json(vocabulary), "dir/tokenizer.json");
    ASSERT_FALSE(tokenizer.ok()) << pattern;
    EXPECT_THAT(
        tokenizer.error().text,
        testing::StartsWith("dir/tokenizer.json: pre_tokenizer.pretokenizers[0].pattern.Regex: "));
  }
}

TEST(TokenizerFile, RefusesDeepNesting) {
  const std::string json = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(Tokenizer::parse(json, "t").error().text, HasSubstr("not valid JSON"));
}

TEST(TokenizerFile, RefusesFilesThatAreMissingOrTooLarge) {
  EXPECT_EQ(Tokenizer::load("/nowhere/tokenizer.json").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Tokenizer::load("/dev/zero").error().code, ErrorCode::kNotFound) << "not a file";
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / "tandem_large_tokenizer.json";
  std::ofstream(path).close();
  std::filesystem::resize_file(path, size_t{1} << 30);  // sparse: takes no room on the disk
  const auto tokenizer = Tokenizer::load(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kTooLarge);
  EXPECT_THAT(tokenizer.error().text, HasSubstr("tandem_large_tokenizer.json"));
}

TEST(TokenizerFile, TakesATokenThatIsListedTwiceUnderOneId) {
  std::string json = to_json(small());
  json.replace(json.find(R"("added_tokens":[)"), 16,
               R"("added_tokens":[{"id":256,"content":"ab","special":true},)");
  const auto tokenizer = Tokenizer::parse(json, "t");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().text;
  EXPECT_TRUE(tokenizer->is_special(256));
}

}  // namespace
}  // namespace tandem::text
