// Runs the members of a convolution's kernels, compares their results bit for bit, and those of the first member with
// plain sums.

#include <random>
#include <string>

struct Window { int n, h, w, c, f, kh, kw, sh, sw, ph, pw, dh, dw, groups, ho, wo; };

template <class T> struct Element;
template <> struct Element<float> {
    static float of(float value) { return value; }
};
template <> struct Element<bf16> {
    static bf16 of(float value) { return bf16{emulated_bf16(value)}; }
};
// A buffer at a multiple of 256 bytes, followed by bytes that must not change.
struct Buffer {
    static constexpr size_t GUARD = 4096;
    char* at;
    size_t bytes;
    explicit Buffer(size_t bytes) : bytes(bytes) {
        at = (char*)aligned_alloc(256, (bytes + GUARD + 255) / 256 * 256);
        memset(at, 0xff, bytes);
        memset(at + bytes, 0x5a, GUARD);
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() { free(at); }
    void check(const char* what) const {
        for (size_t i = 0; i < GUARD; ++i)
            if (at[bytes + i] != 0x5a) fail(what);
    }
};

template <class Op, int PHASE> struct OneThread {
    const Args& args;
    int block;
    char* shared;
    static void run(void* self) {
        OneThread& one = *(OneThread*)self;
        Op::template run<PHASE>(one.args, one.block, one.shared);
    }
};
template <class Op, int PHASE> void run_phase(const Args& args, int blocks) {
    const int bytes = Op::smem(PHASE);
    for (int block = 0; block < blocks; ++block) {
        Buffer shared(bytes);
        OneThread<Op, PHASE> one{args, block, shared.at};
        run_block(Op::THREADS, &OneThread<Op, PHASE>::run, &one);
        shared.check("a write beyond the shared memory");
    }
}
template <class Op, bool GENERAL, int PHASE> int blocks_of(const Args& args) {
    if constexpr (GENERAL) return Op::blocks_for(args, PHASE);
    else return Op::blocks(PHASE);
}

template <class T, int KIND> struct Convolution {
    static constexpr bool FORWARD = KIND == CONV_FORWARD, OF_WEIGHT = KIND == CONV_BACKWARD_W;
    using Result = typename ConvResult<T, OF_WEIGHT>::Of;
    Window g;
    std::string name;
    double tolerance;
    size_t nx, ny, nw, results;
    Buffer x, y, weight, bias;
    std::vector<double> expected;
    std::vector<char> first;
    std::string first_name;

    Convolution(const char* name, const Window& g, double tolerance)
        : g(g), name(name), tolerance(tolerance), nx((size_t)g.n * g.h * g.w * g.c),
          ny((size_t)g.n * g.ho * g.wo * g.f), nw((size_t)g.f * g.kh * g.kw * (g.c / g.groups)),
          results(FORWARD ? ny : OF_WEIGHT ? nw : nx), x(nx * sizeof(T)), y(ny * sizeof(T)), weight(nw * sizeof(T)),
          bias(g.f * 4), expected(results) {
        std::mt19937 random(7);
        std::normal_distribution<float> normal;
        for (size_t i = 0; i < nx; ++i) ((T*)x.at)[i] = Element<T>::of(normal(random));
        for (size_t i = 0; i < ny; ++i) ((T*)y.at)[i] = Element<T>::of(normal(random));
        for (size_t i = 0; i < nw; ++i) ((T*)weight.at)[i] = Element<T>::of(normal(random));
        for (int i = 0; i < g.f; ++i) ((float*)bias.at)[i] = normal(random);
        add_up();
    }
    static double value(const Buffer& buffer, size_t i) { return to_float(((const T*)buffer.at)[i]); }
    void add_up() {
        const int cg = g.c / g.groups, fg = g.f / g.groups;
        for (int n = 0; n < g.n; ++n) for (int ho = 0; ho < g.ho; ++ho) for (int wo = 0; wo < g.wo; ++wo)
        for (int f = 0; f < g.f; ++f) {
            const size_t at_y = (((size_t)n * g.ho + ho) * g.wo + wo) * g.f + f;
            if (FORWARD) expected[at_y] += ((const float*)bias.at)[f];
            for (int i = 0; i < g.kh; ++i) for (int j = 0; j < g.kw; ++j) {
                const int h = ho * g.sh + i * g.dh - g.ph, w = wo * g.sw + j * g.dw - g.pw;
                if (h < 0 || w < 0 || h >= g.h || w >= g.w) continue;
                for (int c = 0; c < cg; ++c) {
                    const size_t at_x = (((size_t)n * g.h + h) * g.w + w) * g.c + f / fg * cg + c;
                    const size_t at_w = (((size_t)f * g.kh + i) * g.kw + j) * cg + c;
                    if (FORWARD) expected[at_y] += value(x, at_x) * value(weight, at_w);
                    else if (OF_WEIGHT) expected[at_w] += value(x, at_x) * value(y, at_y);
                    else expected[at_x] += value(y, at_y) * value(weight, at_w);
                }
            }
            if (FORWARD && expected[at_y] < 0.0) expected[at_y] = 0.0;
        }
    }

    // Runs a member with its numbers. The first one of a kernel must agree with the plain sums, the others with it.
    template <class Op, bool GENERAL>
    void run(const char* member, bool is_first, std::vector<u64> numbers, size_t work_bytes) {
        const std::string what = name + ": " + member;
        Args args;
        memset(&args, 0, sizeof(args));
        Buffer result(results * sizeof(Result)), work(work_bytes);
        args.p[slots::product::A] = FORWARD || OF_WEIGHT ? x.at : y.at;
        args.p[slots::product::B] = OF_WEIGHT ? y.at : weight.at;
        args.p[slots::product::BIAS] = bias.at;
        args.p[slots::product::C] = result.at;
        args.p[slots::product::WORK] = work.at;
        for (size_t i = 0; i < numbers.size(); ++i) args.p[18 - i] = (void*)numbers[i];
        run_phase<Op, 0>(args, blocks_of<Op, GENERAL, 0>(args));
        if constexpr (Op::PHASES > 1) run_phase<Op, 1>(args, blocks_of<Op, GENERAL, 1>(args));
        result.check(("a write beyond the result: " + what).c_str());
        work.check(("a write beyond the scratch memory: " + what).c_str());
        const Result* found = (const Result*)result.at;
        if (is_first) {
            double largest = 0.0, worst = 0.0;
            for (size_t i = 0; i < results; ++i) {
                largest = fmax(largest, fabs(expected[i]));
                const double error = fabs(expected[i] - to_float(found[i]));
                worst = error <= worst ? worst : error;
            }
            if (!(worst <= tolerance * largest)) {
                printf("error %g of %g\n", worst, largest);
                fail((what + " differs from plain sums").c_str());
            }
            first.assign(result.at, result.at + result.bytes), first_name = what;
        } else if (memcmp(first.data(), result.at, result.bytes) != 0) {
            fail((what + " differs from " + first_name).c_str());
        }
        printf("%s\n", what.c_str());
    }
};
