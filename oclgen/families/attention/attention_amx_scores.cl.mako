<%doc>
What attention_amx and attention_amx_grad do with scores, a row for each key and a query in each lane.

seen        which keys a query sees: see `Seen`
masked      there is an additive mask
half        16 bits are fp16, else bf16
</%doc>
% if masked:
// the mask of 16 keys of 16 rows, of which `count` keys are there
void biases(float16 *to, __global const elem_t *mask, const long *rows, const long column, const int count)
{
    for (int i = 0; i < 16; ++i) {
        if (column == 1 && count >= 16) {
            to[i] = LOAD16(mask + rows[i]);
        } else {
            float part[16];
            for (int key = 0; key < 16; ++key) {
                part[key] = LOAD1(mask + rows[i] + min(key, count - 1) * column);
            }
            to[i] = vload16(0, part);
        }
    }
    transpose(to);
}

% endif
// scores of 32 keys times `factor`${", plus the mask" if masked else ""}; -INFINITY where a query does not see the key
void limit_scores(
    float *scores, const float factor, const int key0, const int keys${", const int16 query" if seen.is_limited else ""}${", " if masked else ")"}
% if masked:
    __global const elem_t *mask, const long *mask_rows, const long mask_column)
% endif
{
    for (int i = 0; i < 32; i += 16) {
% if masked:
        float16 bias[16];
        biases(bias, mask + (key0 + i) * mask_column, mask_rows, mask_column, keys - key0 - i);
% endif
        for (int n = 0; n < 16; ++n) {
            const int16 key = key0 + i + n;
            const int16 is_seen = (key >= ${seen.first_key("query")}) & (key < ${seen.last_key("query")});
            const float16 value = vload16(i + n, scores) * factor${" + bias[n] * 1.44269504f" if masked else ""};
            vstore16(select((float16)(-INFINITY), value, is_seen), i + n, scores);
        }
    }
}

% if half:
uint16 bits_of(const float16 value)
{
    ushort bits[16] __attribute__((aligned(32)));
    vstore_half16_rte(value, 0, (half *)bits);
    return convert_uint16(vload16(0, bits));
}
% else:
// rounded, with halves away from zero
#define bits_of(value) ((as_uint16(value) + 0x8000u) >> 16)
% endif

// words of two numbers of 16 bits
float16 words_of(const float16 low, const float16 high)
{
    return as_float16(bits_of(low) | bits_of(high) << 16);
}
