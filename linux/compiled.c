/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What `compile` compiles: functions of one shape, without headers. */
struct node {
    struct node *left, *right;
    unsigned long key, value[4];
};

#define FUNCTION(n)                                                                                                     \
    static unsigned long find##n(const struct node *node, unsigned long key)                                            \
    {                                                                                                                   \
        unsigned long steps = n;                                                                                        \
        while (node && node->key != key) {                                                                              \
            node = node->key < key ? node->right : node->left;                                                          \
            steps += node ? node->value[steps % 4] ^ (key << (n % 7)) : 1;                                              \
        }                                                                                                               \
        for (unsigned turn = 0; turn < n % 13; turn++)                                                                  \
            steps = steps * 31 + turn;                                                                                  \
        return node ? steps + node->value[n % 4] : steps;                                                               \
    }
#define TEN(n) \
    FUNCTION(n##0) FUNCTION(n##1) FUNCTION(n##2) FUNCTION(n##3) FUNCTION(n##4) \
    FUNCTION(n##5) FUNCTION(n##6) FUNCTION(n##7) FUNCTION(n##8) FUNCTION(n##9)
TEN(1) TEN(2)

unsigned long all(const struct node *node, unsigned long key)
{
    return find10(node, key) + find25(node, key) + find29(node, key);
}
