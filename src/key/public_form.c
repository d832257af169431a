/*
 * public_form.c
 *		The public form of a key, and the lines of the file with its secrets;
 *		with FF1, the format-preserving encryption of NIST SP 800-38G.
 *
 *		prefix | _ | number of the secret | 15 digits
 *
 * The 15 digits are those of the key in base32, 13, and two zeros, enciphered by
 * FF1 with radix 32.  The tweak is the prefix and a byte with the number of the
 * secret, so the same key looks different under each.  A key is below 2^63, so its
 * first digit is below 8: with the zeros, 12 bits distinguish a public form from any
 * other text.  A text that passes is always a key.
 *
 * For FF1 a numeral string is two numbers, its halves, so that a round is one
 * addition; the names of the standard are in comments.  test/lib/ff1.c runs NIST's
 * samples.
 *
 * Nothing here throws or needs a server.  A secret is passed to OpenSSL, and its
 * bytes are wiped.
 */
#include "postgres.h"

#include <openssl/evp.h>

#include "key/public_form.h"
#include "key/text.h"

#define BLOCK 16				/* bytes of an AES block */
#define ROUNDS 10

/* The halves: 7 and 8 digits, of 5 bits each. */
#define HIGH_BITS 35
#define LOW_BITS 40
#define ZERO_BITS 10			/* two digits below the key's */

static const Ff1 form = {
	.radix = 32,.length = 15,.bytes = LOW_BITS / 8,
	.modulus = {UINT64CONST(1) << HIGH_BITS, UINT64CONST(1) << LOW_BITS}
};

static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";

/*---- FF1 ----*/

/* Expands a key of 16, 24 or 32 bytes; NULL: OpenSSL failed. */
Ff1Key *
ff1_key_new(const uint8 *bytes, int len)
{
	EVP_CIPHER_CTX *key = EVP_CIPHER_CTX_new();
	const EVP_CIPHER *aes = EVP_aes_256_ecb();

	if (len < 32)
		aes = len == 16 ? EVP_aes_128_ecb() : EVP_aes_192_ecb();
	if (key && EVP_EncryptInit_ex(key, aes, NULL, bytes, NULL) == 1)
		return key;
	EVP_CIPHER_CTX_free(key);
	return NULL;
}

/* The next link of the CBC-MAC: encrypts "chain" with "block" added to it. */
static inline bool
add_block(Ff1Key *key, uint8 *chain, const uint8 *block)
{
	uint8		in[BLOCK];
	int			len;

	for (int i = 0; i < BLOCK; i++)
		in[i] = chain[i] ^ block[i];
	return EVP_EncryptUpdate(key, chain, &len, in, BLOCK) == 1;
}

static inline void
put_number(uint8 *bytes, int len, uint64 value)
{
	while (len > 0)
	{
		bytes[--len] = (uint8) value;
		value >>= 8;
	}
}

/*
 * The number that these bytes are, 8 or more, modulo "modulus"; if that is a power
 * of two, modulo 2^64, which it divides: higher bits leave "value".
 */
static inline uint64
reduce(const uint8 *bytes, int len, uint64 modulus)
{
	bool		is_power = (modulus & (modulus - 1)) == 0;
	uint64		value = 0;

	for (int i = 0; i < len; i++)
	{
		value = value << 8 | bytes[i];
		if (!is_power)
			value %= modulus;
	}
	return value;
}

/*
 * The common part of all rounds: the CBC-MAC up to the last block of Q, and the
 * bytes of the tweak in that block.
 */
static bool
begin(const Ff1 *form, Ff1Key *key, const uint8 *tweak, int tweak_len,
	  uint8 *chain, uint8 *last)
{
	uint8		header[BLOCK] = {1, 2, 1};	/* P */
	int			blocks = (tweak_len + 1 + form->bytes + BLOCK - 1) / BLOCK;

	put_number(header + 3, 3, form->radix);
	header[6] = ROUNDS;
	header[7] = (uint8) (form->length / 2);
	put_number(header + 8, 4, form->length);
	put_number(header + 12, 4, tweak_len);
	memset(chain, 0, BLOCK);
	if (!add_block(key, chain, header))
		return false;
	for (int i = 0; i < blocks; i++)
	{
		int			len = Min(tweak_len - i * BLOCK, BLOCK);

		memset(last, 0, BLOCK);
		if (len > 0)
			memcpy(last, tweak + i * BLOCK, len);
		if (i < blocks - 1 && !add_block(key, chain, last))
			return false;
	}
	return true;
}

/*
 * Enciphers a numeral string in place, or deciphers it; false: OpenSSL failed.
 * half[0] is the number of the first length / 2 digits, half[1] of the others.
 */
bool
ff1_crypt(const Ff1 *form, Ff1Key *key, const uint8 *tweak, int tweak_len,
		  bool encrypt, uint64 half[2])
{
	uint8		chain[BLOCK];
	uint8		last[BLOCK];
	uint8		mac[BLOCK];		/* R */
	int			len = (form->bytes + 3) / 4 * 4 + 4;	/* d */
	bool		good = begin(form, key, tweak, tweak_len, chain, last);

	for (int i = 0; good && i < ROUNDS; i++)
	{
		int			round = encrypt ? i : ROUNDS - 1 - i;
		int			side = round % 2;
		uint64		modulus = form->modulus[side];
		uint64		y;

		last[BLOCK - 1 - form->bytes] = (uint8) round;
		put_number(last + BLOCK - form->bytes, form->bytes, half[1 - side]);
		memcpy(mac, chain, BLOCK);
		good = add_block(key, mac, last);
		y = reduce(mac, len, modulus);
		half[side] = (half[side] + (encrypt ? y : modulus - y)) % modulus;
	}
	return good;
}

/*---- The secrets ----*/

void
secrets_free(Secrets *secrets)
{
	for (int i = 0; i < SECRETS; i++)
		EVP_CIPHER_CTX_free(secrets->keys[i]);	/* wipes it */
	memset(secrets, 0, sizeof(*secrets));
	secrets->writer = -1;
}

/* Adds a secret, which has only hexadecimal digits; returns NULL, or the problem. */
static const char *
add_secret(Secrets *secrets, int number, const char *hex, bool writes)
{
	uint8		bytes[SECRET_LEN];
	int			len = strlen(hex) / 2;

	if (secrets->keys[number])
		return "has the number of a line before it";
	for (int i = 0; i < len; i++)
		(void) sscanf(hex + 2 * i, "%2hhx", &bytes[i]);
	secrets->keys[number] = ff1_key_new(bytes, len);
	explicit_bzero(bytes, sizeof(bytes));
	if (secrets->keys[number] == NULL)
		return "has a secret that OpenSSL does not take";
	if (writes)
		secrets->writer = Max(secrets->writer, number);
	return NULL;
}

/*
 * Adds the secret of a line: its number, its bytes in hexadecimal, and perhaps
 * "read", for one that does not write.  An empty line, or one that begins with #,
 * has none.  Returns NULL, or what the line has or is.
 */
const char *
secrets_add_line(Secrets *secrets, const char *line)
{
	char		number[4];
	char		hex[2 * SECRET_LEN + 2] = "";
	char		mode[6];
	char		more;
	int			count = sscanf(line, "%3s %65s %5s %c", number, hex, mode, &more);
	int			len = strlen(hex);
	const char *problem = "is not a number from 0 to 31, then 32 or 64 hexadecimal digits, then nothing or the word \"read\"";

	if (count < 1 || number[0] == '#')
		problem = NULL;
	else if (strlen(number) <= 2 && strspn(number, "0123456789") == strlen(number) &&
			 atoi(number) < SECRETS &&
			 (len == SECRET_LEN || len == 2 * SECRET_LEN) &&
			 strspn(hex, "0123456789abcdefABCDEF") == len &&
			 (count == 2 || (count == 3 && strcmp(mode, "read") == 0)))
		problem = add_secret(secrets, atoi(number), hex, count == 2);
	explicit_bzero(hex, sizeof(hex));
	return problem;
}

/*---- The form ----*/

/* A prefix has a to z, 0 to 9, and inner underscores. */
bool
public_prefix_is_good(const char *prefix, int len)
{
	if (len < 1 || len > PREFIX_LEN || prefix[0] == '_' || prefix[len - 1] == '_')
		return false;
	for (int i = 0; i < len; i++)
	{
		if (!(prefix[i] >= 'a' && prefix[i] <= 'z') &&
			!(prefix[i] >= '0' && prefix[i] <= '9') && prefix[i] != '_')
			return false;
	}
	return true;
}

/* Enciphers the halves under a prefix and secret, or deciphers them. */
static bool
crypt_halves(const Secrets *secrets, int number, const char *prefix, int prefix_len,
			 bool encrypt, uint64 half[2])
{
	uint8		tweak[PREFIX_LEN + 1];

	memcpy(tweak, prefix, prefix_len);
	tweak[prefix_len] = (uint8) number;
	return ff1_crypt(&form, secrets->keys[number], tweak, prefix_len + 1, encrypt, half);
}

/*
 * Writes the public form of a key, which is not negative, with the secret that
 * writes; returns its length, or 0: OpenSSL does not encipher.
 */
int
public_write(const Secrets *secrets, const char *prefix, int prefix_len, int64 id,
			 char *buf)
{
	uint64		half[2];
	int			end = prefix_len + 1 + PUBLIC_DIGITS;

	half[0] = (uint64) id >> (LOW_BITS - ZERO_BITS);
	half[1] = ((uint64) id << ZERO_BITS) & (form.modulus[1] - 1);
	if (!crypt_halves(secrets, secrets->writer, prefix, prefix_len, true, half))
		return 0;
	memcpy(buf, prefix, prefix_len);
	buf[prefix_len] = '_';
	buf[prefix_len + 1] = digits[secrets->writer];
	for (int i = 1; i < PUBLIC_DIGITS; i++)
	{
		int			side = i <= LOW_BITS / 5 ? 1 : 0;

		buf[end - i] = digits[half[side] & 31];
		half[side] >>= 5;
	}
	return end;
}

/*
 * Reads a public form.  If it is none, *detail says more: PublicProblem.
 */
PublicProblem
public_read(const Secrets *secrets, const char *prefix, int prefix_len,
			const char *str, int len, int64 *id, int *detail)
{
	uint64		half[2] = {0, 0};
	int			number = 0;
	int			count = 0;

	/* in either case */
	if (len <= prefix_len || str[prefix_len] != '_' ||
		pg_strncasecmp(str, prefix, prefix_len) != 0)
		return PUBLIC_OTHER_PREFIX;
	for (int i = prefix_len + 1; i < len; i++)
	{
		int			digit = digit_of_base32(str[i]);

		if (digit == SKIPPED)
			continue;
		*detail = i;
		if (digit == NO_DIGIT)
			return PUBLIC_NO_DIGIT;
		if (count == 0)
			number = digit;
		else
		{
			int			side = count < PUBLIC_DIGITS - LOW_BITS / 5 ? 0 : 1;

			half[side] = half[side] << 5 | digit;
		}
		count++;
	}
	*detail = count;
	if (count != PUBLIC_DIGITS)
		return PUBLIC_LENGTH;
	*detail = number;
	if (secrets->keys[number] == NULL)
		return PUBLIC_NO_SECRET;
	if (!crypt_halves(secrets, number, prefix, prefix_len, false, half))
		return PUBLIC_NO_CIPHER;
	if (half[0] >> (63 - (LOW_BITS - ZERO_BITS)) != 0 ||
		(half[1] & ((1 << ZERO_BITS) - 1)) != 0)
		return PUBLIC_NOT_MADE;
	*id = (int64) (half[0] << (LOW_BITS - ZERO_BITS) | half[1] >> ZERO_BITS);
	return PUBLIC_GOOD;
}
