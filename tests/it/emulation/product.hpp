// The data of a product, and its plain sums.

enum Transposed { NN, NT, TN };
// What precedes and follows the sums: a bias, an activation, and the derivative of one at a saved value.
struct Ends { bool bias, relu, relu_grad, accumulate; };

template <class T, class Result> struct Product : Operation<Result> {
    Buffer a, b, bias, saved;

    Product(const char* name, int m, int n, int k, Transposed trans, Ends ends, double tolerance)
        : Operation<Result>(name, (size_t)m * n, tolerance), a((size_t)m * k * sizeof(T)), b((size_t)k * n * sizeof(T)),
          bias(n * 4), saved((size_t)m * n * sizeof(T)) {
        std::mt19937 random(11);
        fill<T>(a, random), fill<T>(b, random), fill<float>(bias, random), fill<T>(saved, random);
        this->args.p[slots::product::A] = a.at, this->args.p[slots::product::B] = b.at;
        if (ends.bias) this->args.p[slots::product::BIAS] = bias.at;
        if (ends.relu_grad) this->args.p[slots::product::SAVED] = saved.at;
        if (ends.accumulate)
            for (size_t i = 0; i < this->results; ++i)
                this->before.push_back(Element<Result>::of((float)(i % 7) - 3.0f));
        for (int row = 0; row < m; ++row)
            for (int col = 0; col < n; ++col) {
                const size_t at = (size_t)row * n + col;
                double sum = ends.bias ? ((const float*)bias.at)[col] : 0.0;
                for (int i = 0; i < k; ++i)
                    sum += value<T>(a, trans == TN ? (size_t)i * m + row : (size_t)row * k + i) *
                        value<T>(b, trans == NT ? (size_t)col * k + i : (size_t)i * n + col);
                if (ends.relu && sum < 0.0) sum = 0.0;
                if (ends.relu_grad && !(value<T>(saved, at) > 0.0)) sum = 0.0;
                if (ends.accumulate) sum += (double)(at % 7) - 3.0;
                this->expected[at] = sum;
            }
    }
};
