// Runs the members of a kernel, compares their results bit for bit, and those of the first member with plain sums.

#include <random>
#include <string>

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

// An operation: its name, arguments without result and scratch memory, and what its result should be.
template <class Result> struct Operation {
    std::string name;
    double tolerance;
    size_t results;
    std::vector<double> expected;
    Args args;
    // The result before, for operations that add to it or replace an argument.
    std::vector<Result> before;
    int result_slot = slots::product::C, before_slot = slots::product::C_PREV, work_slot = slots::product::WORK;
    // Further results, and what they should be.
    std::vector<const Buffer*> numbers;
    std::vector<double> expected_numbers;
    std::vector<char> first;
    std::string first_name;

    Operation(const char* name, size_t results, double tolerance)
        : name(name), tolerance(tolerance), results(results), expected(results) {
        memset(&args, 0, sizeof(args));
    }

    // Runs a member with its numbers. The first one of a kernel must agree with the plain sums, the others with it.
    template <class Op, bool GENERAL>
    void run(const char* member, bool is_first, std::vector<u64> sizes, size_t work_bytes) {
        const std::string what = name + ": " + member;
        Buffer result(results * sizeof(Result)), work(work_bytes);
        if (!before.empty()) {
            memcpy(result.at, before.data(), result.bytes);
            args.p[before_slot] = result.at;
        }
        args.p[result_slot] = result.at;
        args.p[work_slot] = work.at;
        for (size_t i = 0; i < sizes.size(); ++i) args.p[18 - i] = (void*)sizes[i];
        run_phase<Op, 0>(args, blocks_of<Op, GENERAL, 0>(args));
        if constexpr (Op::PHASES > 1) run_phase<Op, 1>(args, blocks_of<Op, GENERAL, 1>(args));
        result.check(("a write beyond the result: " + what).c_str());
        work.check(("a write beyond the scratch memory: " + what).c_str());
        const Result* found = (const Result*)result.at;
        std::vector<char> all(result.at, result.at + result.bytes);
        for (const Buffer* number : numbers) {
            number->check(("a write beyond a number: " + what).c_str());
            all.insert(all.end(), number->at, number->at + number->bytes);
        }
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
            for (size_t i = 0; i < numbers.size(); ++i) {
                const double got = *(const float*)numbers[i]->at, wanted = expected_numbers[i];
                if (!(fabs(got - wanted) <= tolerance * fmax(1.0, fabs(wanted)))) {
                    printf("number %zu is %g, not %g\n", i, got, wanted);
                    fail((what + " differs from plain sums").c_str());
                }
            }
            first = all, first_name = what;
        } else if (first != all) {
            fail((what + " differs from " + first_name).c_str());
        }
        printf("%s\n", what.c_str());
    }
};

template <class T> void fill(Buffer& buffer, std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < buffer.bytes / sizeof(T); ++i) ((T*)buffer.at)[i] = Element<T>::of(normal(random));
}
template <class T> double value(const Buffer& buffer, size_t i) { return to_float(((const T*)buffer.at)[i]); }
