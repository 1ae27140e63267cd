// SPDX-License-Identifier: Apache-2.0
// linear beside oneDNN's f32 matmul with its own weight layout, on one thread. oneDNN 2.6 has no
// bf16 kernel below AVX-512 but its reference loops; it reads f32 weights, twice our bytes.
#include <dnnl.hpp>
#include <vector>

#include "kernels/bench_support.h"
#include "kernels/cases.h"
#include "kernels/linear.h"

extern "C" void omp_set_num_threads(int);

namespace tandem::kernels {
namespace {

// y = x w^T in f32 with weights reordered once, as an engine would hold them.
bench::Timing time_onednn(const LinearCase& c, const TestTensor& x, const TestTensor& w) {
  using Tag = dnnl::memory::format_tag;
  constexpr auto kF32 = dnnl::memory::data_type::f32;
  std::vector<float> xs, ws, y(static_cast<size_t>(c.t * c.n));
  for (int64_t i = 0; i < x.view().count(); ++i) xs.push_back(static_cast<float>(x.at(i)));
  for (int64_t i = 0; i < w.view().count(); ++i) ws.push_back(static_cast<float>(w.at(i)));
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const dnnl::memory::desc x_desc({c.t, c.k}, kF32, Tag::ab), y_desc({c.t, c.n}, kF32, Tag::ab);
  const dnnl::matmul::primitive_desc plan(
      dnnl::matmul::desc(x_desc, dnnl::memory::desc({c.k, c.n}, kF32, Tag::any), y_desc), engine);
  dnnl::memory x_memory(x_desc, engine, xs.data()), y_memory(y_desc, engine, y.data());
  dnnl::memory plain({{c.k, c.n}, kF32, Tag::ba}, engine, ws.data());
  dnnl::memory packed(plan.weights_desc(), engine);
  dnnl::reorder(plain, packed).execute(stream, plain, packed);
  stream.wait();
  const dnnl::matmul product(plan);
  return bench::measure([&] {
    product.execute(
        stream, {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, y_memory}});
    stream.wait();
  });
}

void bench_case(const OpBench& b, const LinearCase& c) {
  if (!c.bench || !b.report.wants("kernels/linear", c.name)) return;
  TestTensor x(DType::kBf16, {c.t, c.k}), w(DType::kBf16, {c.n, c.k}), y(DType::kBf16, {c.t, c.n});
  Rng rng(1);
  x.fill_normal(rng);
  w.fill_normal(rng);
  const Buffer packed(linear_weight_bytes({}, c.n, c.k));
  const LinearWeight weight = linear_pack(b.exec.exec, w, packed.data());
  const bench::Timing ours =
      bench::measure([&] { linear(b.exec.exec, {.x = x, .weight = weight, .y = y}); });
  const bench::Timing peer = time_onednn(c, x, w);
  const auto t = static_cast<double>(c.t), n = static_cast<double>(c.n);
  const auto k = static_cast<double>(c.k);
  add_row(b, "kernels/linear", c.name, 2 * t * n * k, 2 * (n * k + t * k + t * n), ours, &peer,
          "oneDNN 2.6.3 f32");
}

}  // namespace

void bench_linear(const OpBench& b) {
  omp_set_num_threads(1);
  for (const LinearCase& c : kLinearCases) bench_case(b, c);
  for (const LinearCase& c : kLinearBenchCases) bench_case(b, c);
}

}  // namespace tandem::kernels
