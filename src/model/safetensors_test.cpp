// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/safetensors_test_files.h"

namespace tandem::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kFile = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

Result<SafetensorsHeader> parse(std::string_view json, uint64_t data_bytes) {
  const std::string head = safetensors_head(json);
  return parse_safetensors_header(head, head.size() + data_bytes, "x.safetensors");
}

std::string parse_error(std::string_view json, uint64_t data_bytes) {
  const auto header = parse(json, data_bytes);
  if (header.ok()) return "accepted";
  EXPECT_THAT(header.error().text, HasSubstr("x.safetensors"));
  return header.error().text;
}

// --- The header

TEST(SafetensorsHeader, ReadsTensorsInAnyOrderAndMetadata) {
  const auto header = parse(R"({"__metadata__":{"format":"pt"},
    "b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},
    "scalar":{"data_offsets":[28,30],"shape":[],"dtype":"F16"},
    "empty":{"dtype":"I64","shape":[0,7],"data_offsets":[4,4]},
    "also empty":{"dtype":"I64","shape":[0],"data_offsets":[4,4]},
    "a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}   )",
                            30);
  ASSERT_TRUE(header.ok()) << header.error().text;
  EXPECT_EQ(header->tensors.size(), 5U);
  EXPECT_EQ(header->metadata.at("format"), "pt");
  const TensorInfo& b = header->tensors.find("b")->second;
  EXPECT_EQ(b.dtype, DType::kF32);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b.begin, 4U);
  EXPECT_EQ(b.end, 28U);
  EXPECT_TRUE(parse("{}", 0).ok());
}

TEST(SafetensorsHeader, RefusesLengthsThatCannotBe) {
  const auto error = [](uint64_t length, uint64_t file_bytes) {
    std::string head(8, '\0');
    for (size_t i = 0; i < 8; ++i) head[i] = static_cast<char>(length >> 8 * i & 0xffU);
    head += "{}";
    return parse_safetensors_header(head, file_bytes, "x.safetensors").error().text;
  };
  EXPECT_THAT(error(0, 10), HasSubstr("x.safetensors: header length 0 is not in"));
  EXPECT_THAT(error(1, 10), HasSubstr("header length 1 is not in"));
  EXPECT_THAT(error(uint64_t{1} << 63, 10), HasSubstr("header length 9223372036854775808"));
  EXPECT_THAT(error(UINT64_MAX, 10), HasSubstr("is not in 2..100000000"));
  EXPECT_THAT(error(100'000'001, 1 << 30), HasSubstr("is not in"));
  EXPECT_THAT(error(3, 10), HasSubstr("larger than the file of 10 bytes"));
  EXPECT_THAT(error(20, 100), HasSubstr("is cut at 2"));
  EXPECT_THAT(parse_safetensors_header("1234567", 7, "x.safetensors").error().text,
              HasSubstr("shorter than the 8 bytes"));
}

TEST(SafetensorsHeader, RefusesWhatIsNotStrictJson) {
  EXPECT_THAT(parse_error("[]", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(parse_error(" {}", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(parse_error("{\"a\":", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("{} x", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("{\"\xff\":1}", 0), HasSubstr("UTF-8"));
  std::string deep = "{\"a\":";
  for (int i = 0; i < 200; ++i) deep += '[';
  for (int i = 0; i < 200; ++i) deep += ']';
  EXPECT_THAT(parse_error(deep + "}", 0), HasSubstr("deep"));
  EXPECT_THAT(parse_error(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                              "a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                          1),
              HasSubstr("key 'a' stands twice"));
  EXPECT_THAT(
      parse_error(R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1),
      HasSubstr("key 'shape' stands twice"));
}

TEST(SafetensorsHeader, RefusesOddTensors) {
  const auto error = [](std::string_view fields, uint64_t bytes) {
    return parse_error(fmt::format("{{\"the.name\":{}}}", fields), bytes);
  };
  const auto named = [](std::string_view what) {
    return AllOf(HasSubstr("tensor 'the.name'"), HasSubstr(std::string(what)));
  };
  EXPECT_THAT(error("[]", 0), named("not described by an object"));
  EXPECT_THAT(error("{}", 0), named("lacks dtype, shape or data_offsets"));
  EXPECT_THAT(error(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1})", 1),
              named("unknown field 'x'"));
  EXPECT_THAT(error(R"({"dtype":"F7","shape":[1],"data_offsets":[0,1]})", 1),
              named("unknown dtype 'F7'"));
  EXPECT_THAT(error(R"({"dtype":7,"shape":[1],"data_offsets":[0,1]})", 1), named("no dtype name"));
  EXPECT_THAT(error(R"({"dtype":"U8","shape":1,"data_offsets":[0,1]})", 1),
              named("no list as shape"));
  EXPECT_THAT(error(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})", 1), named("extent -1"));
  EXPECT_THAT(error(R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})", 1),
              named("extent 1.0"));
  EXPECT_THAT(error(R"({"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]})", 1),
              named("extent 18446744073709551615"));
  EXPECT_THAT(error(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})", 0),
              named("size overflows"));
  EXPECT_THAT(error(R"({"dtype":"I64","shape":[2305843009213693952],"data_offsets":[0,0]})", 0),
              named("size overflows"));
  EXPECT_THAT(error(R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]})", 1),
              named("9 dimensions"));
  EXPECT_THAT(error(R"({"dtype":"U8","shape":[2],"data_offsets":[0,1]})", 1),
              named("takes 2 bytes by dtype and shape, 1 by data_offsets"));
  EXPECT_THAT(error(R"({"dtype":"U8","shape":[1],"data_offsets":[1,0]})", 1), named("reversed"));
  EXPECT_THAT(error(R"({"dtype":"U8","shape":[1],"data_offsets":[-1,0]})", 1),
              named("data_offset -1"));
  EXPECT_THAT(error(R"({"dtype":"U8","shape":[1],"data_offsets":[0]})", 1),
              named("1 data_offsets"));
  EXPECT_THAT(error(R"({"dtype":"U8","shape":[1],"data_offsets":{}})", 1),
              named("no list as data_offsets"));
  EXPECT_THAT(parse_error(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("name of 0 bytes"));
  EXPECT_EQ(parse(R"({"a":{"dtype":"F7","shape":[1],"data_offsets":[0,1]}})", 1).error().code,
            ErrorCode::kUnsupported);
}

TEST(SafetensorsHeader, TensorsMustTileTheDataExactly) {
  const auto two = [](std::string_view first, std::string_view second) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                       R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
                       first, second);
  };
  EXPECT_EQ(parse_error(two("[0,4]", "[4,8]"), 8), "accepted");
  EXPECT_EQ(parse_error(two("[4,8]", "[0,4]"), 8), "accepted");
  EXPECT_THAT(parse_error(two("[0,4]", "[3,7]"), 7), HasSubstr("'b' overlaps"));
  EXPECT_THAT(parse_error(two("[0,4]", "[0,4]"), 4), HasSubstr("overlaps"));
  EXPECT_THAT(parse_error(two("[0,4]", "[5,9]"), 9),
              HasSubstr("'b' begins at byte 5 after a hole"));
  EXPECT_THAT(parse_error(two("[1,5]", "[5,9]"), 9),
              HasSubstr("'a' begins at byte 1 after a hole"));
  EXPECT_THAT(parse_error(two("[0,4]", "[4,8]"), 7), HasSubstr("truncated"));
  EXPECT_THAT(parse_error(two("[0,4]", "[4,8]"), 9), HasSubstr("1 extra bytes"));
  EXPECT_THAT(parse_error("{}", 1), HasSubstr("1 extra bytes"));
}

TEST(SafetensorsHeader, RefusesOddMetadata) {
  EXPECT_THAT(parse_error(R"({"__metadata__":[]})", 0), HasSubstr("__metadata__ is not an object"));
  EXPECT_THAT(parse_error(R"({"__metadata__":{"a":1}})", 0), HasSubstr("'a' is not a string"));
  EXPECT_EQ(parse_error(R"({"__metadata__":{}})", 0), "accepted");
}

TEST(SafetensorsHeader, ErrorsShowHostileNamesShortAndClean) {
  const std::string name = "\\u0007\\n" + std::string(900, 'n');
  const std::string error = parse_error(fmt::format("{{\"{}\":[]}}", name), 0);
  EXPECT_LT(error.size(), 250U);
  EXPECT_THAT(error, HasSubstr("tensor '??nnn"));
  EXPECT_THAT(parse_error(fmt::format("{{\"{:n>2000}\":[]}}", ""), 0),
              HasSubstr("name of 2000 bytes"));
}

TEST(SafetensorsHeader, TakesAHundredThousandTensors) {
  std::string json = "{";
  for (int i = 0; i < 100000; ++i) {
    json += fmt::format("{}\"t{}\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[{},{}]}}",
                        i == 0 ? "" : ",", i, i, i + 1);
  }
  const auto header = parse(json + "}", 100000);
  ASSERT_TRUE(header.ok()) << header.error().text;
  EXPECT_EQ(header->tensors.size(), 100000U);
}

// --- Files and folders

const std::vector<TestTensor> kTwo{{.name = "a", .dtype = "U8", .shape = {3}, .bytes = "abc"},
                                   {.name = "b", .dtype = "U8", .shape = {2}, .bytes = "de"}};

std::string index_of(std::string_view map) {
  return fmt::format(R"({{"metadata":{{"total_size":5}},"weight_map":{{{}}}}})", map);
}

std::string open_error(const TempFolder& folder) {
  const auto checkpoint = Checkpoint::open(folder.path());
  return checkpoint.ok() ? "accepted" : checkpoint.error().text;
}

TEST(Checkpoint, ReadsASingleFile) {
  const TempFolder folder;
  folder.write(kFile, safetensors_file(kTwo));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().text;
  EXPECT_EQ(checkpoint->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(checkpoint->file_of("b"), kFile);
  EXPECT_EQ(checkpoint->find("c"), nullptr);
  std::string out(2, ' ');
  ASSERT_TRUE(checkpoint->read("b", out.data(), 2).ok());
  EXPECT_EQ(out, "de");
  ASSERT_TRUE(checkpoint->read_part("a", 1, out.data(), 2).ok());
  EXPECT_EQ(out, "bc");
  EXPECT_EQ(checkpoint->bytes_read(), 4U);
  EXPECT_TRUE(checkpoint->check_unchanged().ok());
  EXPECT_DEATH((void)checkpoint->read_part("a", 2, out.data(), 2), "a: 2\\+2 of 3");
  EXPECT_TRUE(Checkpoint::open_file(folder / kFile).ok());
}

TEST(Checkpoint, ReadsShards) {
  const TempFolder folder;
  folder.write("model-1.safetensors", safetensors_file({kTwo[0]}));
  folder.write("model-2.safetensors", safetensors_file({kTwo[1]}));
  folder.write(kIndex, index_of(R"("a":"model-1.safetensors","b":"model-2.safetensors")"));
  folder.write("consolidated.safetensors", "not ours");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().text;
  ASSERT_EQ(checkpoint->shards().size(), 2U);
  EXPECT_EQ(checkpoint->shards()[1].file_name, "model-2.safetensors");
  EXPECT_EQ(checkpoint->shards()[1].tensor_count, 1U);
  std::string out(2, ' ');
  ASSERT_TRUE(checkpoint->read("b", out.data(), 2).ok());
  EXPECT_EQ(out, "de");
}

TEST(Checkpoint, MissingFilesAreNamed) {
  const TempFolder folder;
  EXPECT_THAT(open_error(folder), HasSubstr("model.safetensors: No such file"));
  EXPECT_EQ(Checkpoint::open(folder / "absent").error().code, ErrorCode::kNotFound);
  folder.write("plain", "");
  EXPECT_FALSE(Checkpoint::open(folder / "plain").ok());
  EXPECT_FALSE(Checkpoint::open_file(folder / "absent.safetensors").ok());
}

TEST(Checkpoint, IndexAndShardsMustAgree) {
  const TempFolder folder;
  const std::string_view good = R"("a":"model-1.safetensors","b":"model-1.safetensors")";
  folder.write(kIndex, index_of(good));
  EXPECT_THAT(open_error(folder),
              AllOf(HasSubstr(std::string(kIndex)),
                    HasSubstr("shard 'model-1.safetensors', which is missing")));
  folder.write("model-1.safetensors", safetensors_file({kTwo[0]}));
  EXPECT_THAT(open_error(folder), HasSubstr("tensor 'b' in 'model-1.safetensors', which lacks it"));
  folder.write("model-1.safetensors", safetensors_file(kTwo));
  EXPECT_EQ(open_error(folder), "accepted");
  folder.write(kIndex, index_of(R"("a":"model-1.safetensors")"));
  EXPECT_THAT(open_error(folder), HasSubstr("does not place tensor 'b' in 'model-1.safetensors'"));
  folder.write("model-2.safetensors", safetensors_file(kTwo));  // both tensors twice
  folder.write(kIndex, index_of(R"("a":"model-1.safetensors","b":"model-2.safetensors")"));
  EXPECT_THAT(open_error(folder), HasSubstr("does not place tensor 'b' in 'model-1.safetensors'"));
  folder.write(kIndex, index_of(good));
  EXPECT_THAT(open_error(folder), HasSubstr("does not name shard 'model-2.safetensors'"));
  std::filesystem::remove(folder / "model-2.safetensors");
  folder.write(kFile, safetensors_file(kTwo));
  EXPECT_THAT(open_error(folder), HasSubstr("stands beside model.safetensors"));
}

TEST(Checkpoint, ShardNamesCannotLeaveTheFolder) {
  const TempFolder folder;
  folder.write("model-1.safetensors", safetensors_file(kTwo));
  for (const char* name : {"../model-1.safetensors", "/etc/passwd", "sub/m.safetensors", "..", "",
                           ".", "model-1.bin", "m\\u0000.safetensors"}) {
    folder.write(kIndex, index_of(fmt::format("\"a\":\"{}\"", name)));
    EXPECT_THAT(open_error(folder), AllOf(HasSubstr("tensor 'a' has shard"),
                                          HasSubstr("no name of a .safetensors file")))
        << name;
  }
  folder.write(kIndex, index_of("\"a\":7"));
  EXPECT_THAT(open_error(folder), HasSubstr("tensor 'a' has shard 7"));
  folder.write(kIndex, index_of(""));
  EXPECT_THAT(open_error(folder), HasSubstr("weight_map is empty"));
  folder.write(kIndex, R"({"weight_map":[]})");
  EXPECT_THAT(open_error(folder), HasSubstr("field 'weight_map' is no object"));
  folder.write(kIndex, "{");
  EXPECT_THAT(open_error(folder), AllOf(HasSubstr(std::string(kIndex)), HasSubstr("JSON")));
}

TEST(Checkpoint, OnlyRegularFilesOpenAndLinksToThem) {
  const TempFolder cache, folder;  // as the Hugging Face cache: names are links to blobs elsewhere
  cache.write("blob", safetensors_file(kTwo));
  std::filesystem::create_symlink(cache / "blob", folder / kFile);
  EXPECT_EQ(open_error(folder), "accepted");

  std::filesystem::remove(folder / kFile);
  std::filesystem::create_symlink("/dev/zero", folder / kFile);
  EXPECT_THAT(open_error(folder), HasSubstr("model.safetensors: is not a regular file"));
  std::filesystem::remove(folder / kFile);
  std::filesystem::create_symlink("/nonexistent", folder / kFile);
  EXPECT_THAT(open_error(folder), HasSubstr("No such file"));
  std::filesystem::remove(folder / kFile);
  std::filesystem::create_symlink(kFile, folder / kFile);  // to itself
  EXPECT_THAT(open_error(folder), HasSubstr("symbolic links"));
  std::filesystem::remove(folder / kFile);
  std::filesystem::create_directory(folder / kFile);
  EXPECT_THAT(open_error(folder), HasSubstr("is not a regular file"));
  std::filesystem::remove(folder / kFile);
  ASSERT_EQ(::mkfifo((folder / kFile).c_str(), 0600), 0);  // opening it would wait for a writer
  EXPECT_THAT(open_error(folder), HasSubstr("is not a regular file"));
  std::filesystem::remove(folder / kFile);
  if (::geteuid() != 0) {  // root reads everything
    folder.write(kFile, safetensors_file(kTwo));
    std::filesystem::permissions(folder / kFile, std::filesystem::perms::none);
    EXPECT_THAT(open_error(folder), HasSubstr("Permission denied"));
  }
}

TEST(Checkpoint, TruncatedExtendedAndEmptyFilesAreRefused) {
  const TempFolder folder;
  const std::string whole = safetensors_file(kTwo);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    folder.write(kFile, std::string_view(whole).substr(0, bytes));
    ASSERT_THAT(open_error(folder), HasSubstr("model.safetensors")) << bytes;
  }
  folder.write(kFile, whole + "x");
  EXPECT_THAT(open_error(folder), HasSubstr("1 extra bytes"));
}

TEST(Checkpoint, AFileThatChangesWhileOpenIsNoticed) {
  const TempFolder folder;
  const std::string whole = safetensors_file(kTwo);
  folder.write(kFile, whole);
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  std::filesystem::resize_file(folder / kFile, whole.size() - 1);
  std::string out(2, ' ');
  const auto read = checkpoint->read("b", out.data(), 2);
  ASSERT_FALSE(read.ok());  // an error, where a mapping would end the process
  EXPECT_THAT(read.error().text, AllOf(HasSubstr("model.safetensors"), HasSubstr("1 bytes early")));
  const auto changed = checkpoint->check_unchanged();
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(changed.error().text, HasSubstr("model.safetensors: was changed"));

  // A new file under the old name does not matter: the old one stays open.
  folder.write(kFile, whole);
  const auto second = Checkpoint::open(folder.path());
  ASSERT_TRUE(second.ok());
  folder.write("new", safetensors_file({kTwo[0]}));
  std::filesystem::rename(folder / "new", folder / kFile);
  EXPECT_TRUE(second->read("b", out.data(), 2).ok());
  EXPECT_EQ(out, "de");
}

}  // namespace
}  // namespace tandem::model
