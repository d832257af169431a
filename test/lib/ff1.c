/*
 * ff1.c
 *		The cipher of public forms, as the library has it: NIST's samples, and what
 *		holds for every key.
 *
 *	test/lib/ff1 [KEYS [SEED]]
 *
 * Linked with the object files of src/key.  Prints a line for each property, which
 * begins with "not so: " where it does not hold.
 */
#include "postgres.h"

#include <math.h>

#include <openssl/evp.h>

#include "key/public_form.h"
#include "key/text.h"

#undef printf

#define MAX_DIGITS 20

static const char base36[] = "0123456789abcdefghijklmnopqrstuvwxyz";
static bool failed = false;

static void
property(bool holds, const char *what)
{
	printf("%s%s\n", holds ? "" : "not so: ", what);
	failed |= !holds;
}

static int
read_hex(const char *hex, uint8 *bytes)
{
	int			len = strlen(hex) / 2;
	unsigned int byte;

	for (int i = 0; i < len; i++)
	{
		sscanf(hex + 2 * i, "%2x", &byte);
		bytes[i] = byte;
	}
	return len;
}

/* The form of so many numerals of a radix. */
static Ff1
form_of(int radix, int length)
{
	Ff1			form = {.radix = radix,.length = length,.modulus = {1, 1}};

	for (int i = 0; i < length; i++)
		form.modulus[i >= length / 2] *= radix;
	for (uint64 value = form.modulus[1] - 1; value > 0; value >>= 8)
		form.bytes++;
	return form;
}

/* Enciphers text in the digits of base36, or deciphers it, in place. */
static void
crypt_text(const char *key_hex, int radix, const char *tweak_hex, bool encrypt, char *str)
{
	Ff1			form = form_of(radix, strlen(str));
	uint8		bytes[32];
	uint8		tweak[64];
	int			tweak_len = read_hex(tweak_hex, tweak);
	Ff1Key	   *key = ff1_key_new(bytes, read_hex(key_hex, bytes));
	uint64		half[2] = {0, 0};
	int			len = strlen(str);

	if (key == NULL)
		abort();
	for (int i = 0; i < len; i++)
		half[i >= len / 2] = half[i >= len / 2] * radix + (strchr(base36, str[i]) - base36);
	if (!ff1_crypt(&form, key, tweak, tweak_len, encrypt, half))
		abort();
	for (int i = len - 1; i >= 0; i--)
	{
		str[i] = base36[half[i >= len / 2] % radix];
		half[i >= len / 2] /= radix;
	}
	EVP_CIPHER_CTX_free(key);
}

/*---- Known answers ----*/

#define KEY128 "2b7e151628aed2a6abf7158809cf4f3c"
#define KEY192 KEY128 "ef4359d8d580aa4f"
#define KEY256 KEY192 "7f036d6f04fc6a94"
#define TWEAK10 "39383736353433323130"
#define TWEAK11 "3737373770717273373737"

typedef struct Answer
{
	const char *key;
	int			radix;
	const char *tweak;
	const char *plain;
	const char *cipher;
} Answer;

/* NIST, "Block Cipher Modes of Operation: FF1", samples 1 to 9. */
static const Answer nist[] =
{
	{KEY128, 10, "", "0123456789", "2433477484"},
	{KEY128, 10, TWEAK10, "0123456789", "6124200773"},
	{KEY128, 36, TWEAK11, "0123456789abcdefghi", "a9tv40mll9kdu509eum"},
	{KEY192, 10, "", "0123456789", "2830668132"},
	{KEY192, 10, TWEAK10, "0123456789", "2496655549"},
	{KEY192, 36, TWEAK11, "0123456789abcdefghi", "xbj3kv35jrawxv32ysr"},
	{KEY256, 10, "", "0123456789", "6657667009"},
	{KEY256, 10, TWEAK10, "0123456789", "1001623463"},
	{KEY256, 36, TWEAK11, "0123456789abcdefghi", "xs8a0azh2avyalyzuwd"}
};

static bool
answers_hold(void)
{
	bool		hold = true;

	for (int i = 0; i < lengthof(nist); i++)
	{
		const Answer *a = &nist[i];
		char		str[MAX_DIGITS + 1];

		strcpy(str, a->plain);
		crypt_text(a->key, a->radix, a->tweak, true, str);
		if (strcmp(str, a->cipher) != 0)
			printf("answer %d: %s instead of %s\n", i + 1, str, a->cipher);
		hold &= strcmp(str, a->cipher) == 0;
		crypt_text(a->key, a->radix, a->tweak, false, str);
		hold &= strcmp(str, a->plain) == 0;
	}
	return hold;
}

/*---- The cipher ----*/

static uint64 seed = 1;

/* splitmix64 */
static uint64
random64(void)
{
	uint64		x = (seed += UINT64CONST(0x9e3779b97f4a7c15));

	x = (x ^ x >> 30) * UINT64CONST(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64CONST(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* All numerals of a small form: does each have a cipher of its own, and its way back? */
static bool
permutes(Ff1Key *key, int radix, int length)
{
	Ff1			form = form_of(radix, length);
	uint64		count = form.modulus[0] * form.modulus[1];
	uint8	   *seen = calloc(count, 1);
	bool		good = true;

	for (uint64 n = 0; good && n < count; n++)
	{
		uint64		half[2] = {n / form.modulus[1], n % form.modulus[1]};
		uint64		there;

		good = ff1_crypt(&form, key, (const uint8 *) "x", 1, true, half);
		there = half[0] * form.modulus[1] + half[1];
		good = good && half[0] < form.modulus[0] && half[1] < form.modulus[1] && !seen[there]++ &&
			ff1_crypt(&form, key, (const uint8 *) "x", 1, false, half) &&
			half[0] * form.modulus[1] + half[1] == n;
	}
	free(seen);
	return good;
}

static bool
all_permute(void)
{
	uint8		bytes[32] = {1, 2, 3};
	Ff1Key	   *key = ff1_key_new(bytes, 32);
	bool		good = true;

	for (int radix = 2; radix <= 36; radix++)
		good &= permutes(key, radix, 2) && permutes(key, radix, 3);
	good &= permutes(key, 2, 15) && permutes(key, 10, 5) && permutes(key, 32, 4);
	EVP_CIPHER_CTX_free(key);
	return good;
}

/*---- Public forms ----*/

static const char *const prefixes[] =
{"c", "ord", "customer9", "customer_1", "abcdefghijklmno", "abcdefghijklmnopqrst"};

#define PREFIXES lengthof(prefixes)

static Secrets secrets = {.writer = -1};

/* Is the public form of a key read as that key, in a form that says its length? */
static bool
comes_back(const char *prefix, int64 id)
{
	char		buf[PUBLIC_LEN];
	int			prefix_len = strlen(prefix);
	int			len = public_write(&secrets, prefix, prefix_len, id, buf);
	int64		back;
	int			detail;

	return len == prefix_len + 1 + PUBLIC_DIGITS &&
		public_read(&secrets, prefix, prefix_len, buf, len, &back, &detail) == PUBLIC_GOOD &&
		back == id;
}

/* Keys as one server makes them, keys at random, and all edges. */
static bool
all_come_back(int64 count)
{
	bool		good = true;
	int64		first = INT64CONST(2124696200530788326);

	for (int p = 0; p < PREFIXES; p++)
	{
		for (int bit = 0; bit < 63; bit++)
		{
			int64		power = INT64CONST(1) << bit;

			good &= comes_back(prefixes[p], power) && comes_back(prefixes[p], power - 1) &&
				comes_back(prefixes[p], PG_INT64_MAX - power);
		}
		good &= comes_back(prefixes[p], PG_INT64_MAX);
	}
	for (int64 i = 0; good && i < count / 2; i++)
		good = comes_back("ord", first + i) &&
			comes_back(prefixes[i % PREFIXES], (int64) (random64() >> 1));
	return good;
}

/* The share of public forms with one digit altered that are read nevertheless. */
static double
accepted_share(int64 count)
{
	int64		accepted = 0;

	for (int64 i = 0; i < count; i++)
	{
		char		buf[PUBLIC_LEN];
		int			len = public_write(&secrets, "ord", 3, (int64) (random64() >> 1), buf);
		char	   *digit = &buf[len - 1 - random64() % (PUBLIC_DIGITS - 1)];
		char		old = *digit;
		int64		id;
		int			detail;

		while (*digit == old)
			*digit = "0123456789abcdefghjkmnpqrstvwxyz"[random64() % 32];
		accepted += public_read(&secrets, "ord", 3, buf, len, &id, &detail) == PUBLIC_GOOD;
	}
	return (double) accepted / count;
}

/* The same of whole ones, read with another prefix, or as of another secret. */
static double
mistaken_share(const char *prefix, char secret, int64 count)
{
	int64		accepted = 0;

	for (int64 i = 0; i < count; i++)
	{
		char		buf[PUBLIC_LEN];
		int			len = public_write(&secrets, "ord", 3, (int64) (random64() >> 1), buf);
		int64		id;
		int			detail;

		memcpy(buf, prefix, 3);
		buf[4] = secret;
		accepted += public_read(&secrets, prefix, 3, buf, len, &id, &detail) == PUBLIC_GOOD;
	}
	return (double) accepted / count;
}

static bool
is_one_in_4096(double share, int64 count)
{
	double		expected = 1.0 / 4096;
	double		difference = share - expected;

	/* within five standard deviations */
	return difference * difference <= 25 * expected / count;
}

/*
 * How often each bit of the 75 of a form changes when one bit of the key does: the
 * mean, and that of the bits which change least and most.
 */
static void
avalanche(int64 count, double *mean, double *least, double *most)
{
	static int64 changed[63][75];
	int64		sum = 0;
	int64		keys = Max(count / 63, 1);

	memset(changed, 0, sizeof(changed));
	for (int64 i = 0; i < keys; i++)
	{
		int64		id = (int64) (random64() >> 1);
		char		a[PUBLIC_LEN];
		char		b[PUBLIC_LEN];

		public_write(&secrets, "ord", 3, id, a);
		for (int bit = 0; bit < 63; bit++)
		{
			public_write(&secrets, "ord", 3, id ^ INT64CONST(1) << bit, b);
			for (int i = 0; i < 75; i++)
			{
				int			difference = digit_of_base32(a[5 + i / 5]) ^ digit_of_base32(b[5 + i / 5]);

				changed[bit][i] += difference >> (i % 5) & 1;
			}
		}
	}
	*least = 1;
	*most = 0;
	for (int i = 0; i < 63 * 75; i++)
	{
		double		share = (double) changed[i / 75][i % 75] / keys;

		sum += changed[i / 75][i % 75];
		*least = Min(*least, share);
		*most = Max(*most, share);
	}
	*mean = (double) sum / keys / (63 * 75);
}

int
main(int argc, char **argv)
{
	int64		count = argc > 1 ? atoll(argv[1]) : 500000;
	double		mean;
	double		least;
	double		most;
	double		spread;
	double		share[3];

	seed = argc > 2 ? atoll(argv[2]) : 1;
	secrets_add_line(&secrets, "1 " KEY256);
	secrets_add_line(&secrets, "0 " KEY128);

	property(answers_hold(), "NIST's samples 1 to 9");
	property(all_permute(), "small forms of all radices are permuted, and come back");
	property(all_come_back(count), "each key comes back from its public form");

	share[0] = accepted_share(count);
	share[1] = mistaken_share("usr", '1', count);
	share[2] = mistaken_share("ord", '0', count);
	printf("one in %.0f with a wrong digit, %.0f with another prefix, %.0f with another secret\n",
		   1 / share[0], 1 / share[1], 1 / share[2]);
	property(is_one_in_4096(share[0], count), "one wrong digit in 4,096 is not seen");
	property(is_one_in_4096(share[1], count), "one wrong prefix in 4,096 is not seen");
	property(is_one_in_4096(share[2], count), "one wrong secret in 4,096 is not seen");

	avalanche(count, &mean, &least, &most);
	printf("a bit of the key changes %.4f of the bits, each %.4f to %.4f\n", mean, least, most);
	spread = 6 * sqrt(0.25 / Max(count / 63, 1));
	property(mean > 0.49 && mean < 0.51 && least > 0.5 - spread && most < 0.5 + spread,
			 "a bit of the key changes each bit of the form in half of the cases");
	secrets_free(&secrets);
	return failed ? 1 : 0;
}
