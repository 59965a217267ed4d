// The data of a convolution, and its plain sums.

struct Window { int n, h, w, c, f, kh, kw, sh, sw, ph, pw, dh, dw, groups, ho, wo; };

template <class T, int KIND>
struct Convolution : Operation<typename ConvResult<T, KIND == CONV_BACKWARD_W>::Of> {
    static constexpr bool FORWARD = KIND == CONV_FORWARD, OF_WEIGHT = KIND == CONV_BACKWARD_W;
    using Base = Operation<typename ConvResult<T, OF_WEIGHT>::Of>;
    Window g;
    Buffer x, y, weight, bias;

    static size_t size_x(const Window& g) { return (size_t)g.n * g.h * g.w * g.c; }
    static size_t size_y(const Window& g) { return (size_t)g.n * g.ho * g.wo * g.f; }
    static size_t size_weight(const Window& g) { return (size_t)g.f * g.kh * g.kw * (g.c / g.groups); }

    Convolution(const char* name, const Window& g, double tolerance)
        : Base(name, FORWARD ? size_y(g) : OF_WEIGHT ? size_weight(g) : size_x(g), tolerance), g(g),
          x(size_x(g) * sizeof(T)), y(size_y(g) * sizeof(T)), weight(size_weight(g) * sizeof(T)), bias(g.f * 4) {
        std::mt19937 random(7);
        fill<T>(x, random), fill<T>(y, random), fill<T>(weight, random), fill<float>(bias, random);
        this->args.p[slots::product::A] = FORWARD || OF_WEIGHT ? x.at : y.at;
        this->args.p[slots::product::B] = OF_WEIGHT ? y.at : weight.at;
        this->args.p[slots::product::BIAS] = bias.at;
        add_up();
    }
    void add_up() {
        const int cg = g.c / g.groups, fg = g.f / g.groups;
        for (int n = 0; n < g.n; ++n) for (int ho = 0; ho < g.ho; ++ho) for (int wo = 0; wo < g.wo; ++wo)
        for (int f = 0; f < g.f; ++f) {
            const size_t at_y = (((size_t)n * g.ho + ho) * g.wo + wo) * g.f + f;
            if (FORWARD) this->expected[at_y] += ((const float*)bias.at)[f];
            for (int i = 0; i < g.kh; ++i) for (int j = 0; j < g.kw; ++j) {
                const int h = ho * g.sh + i * g.dh - g.ph, w = wo * g.sw + j * g.dw - g.pw;
                if (h < 0 || w < 0 || h >= g.h || w >= g.w) continue;
                for (int c = 0; c < cg; ++c) {
                    const size_t at_x = (((size_t)n * g.h + h) * g.w + w) * g.c + f / fg * cg + c;
                    const size_t at_w = (((size_t)f * g.kh + i) * g.kw + j) * cg + c;
                    if (FORWARD) this->expected[at_y] += value<T>(x, at_x) * value<T>(weight, at_w);
                    else if (OF_WEIGHT) this->expected[at_w] += value<T>(x, at_x) * value<T>(y, at_y);
                    else this->expected[at_x] += value<T>(y, at_y) * value<T>(weight, at_w);
                }
            }
            if (FORWARD && this->expected[at_y] < 0.0) this->expected[at_y] = 0.0;
        }
    }
};
