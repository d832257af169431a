/*
 * ff1.c
 *		FF1, the format-preserving encryption of NIST SP 800-38G.
 *
 * A numeral string is held as two numbers, its halves, so that a round is one
 * addition.  The names of the standard are in comments.  Nothing here throws or
 * needs a server, and only a key is allocated: test/ff1.c runs NIST's samples.
 * The caller wipes the bytes of a key; here they are passed to OpenSSL alone.
 */
#include "postgres.h"

#ifdef SNOWID_OPENSSL

#include <openssl/evp.h>

#include "key/ff1.h"

#define BLOCK 16				/* bytes of an AES block */
#define ROUNDS 10

/* So that a sum of halves, and a remainder and a byte, fit into 64 bits. */
#define MODULUS_LIMIT (UINT64CONST(1) << 56)

/* Fills in a form; false: its radix or length is not supported. */
bool
ff1_init(Ff1 *form, int radix, int length)
{
	uint64		value;

	if (radix < 2 || radix > 36 || length < 2)
		return false;
	form->radix = radix;
	form->length = length;
	for (int side = 0; side < 2; side++)
	{
		form->modulus[side] = 1;
		for (int i = 0; i < (length + side) / 2; i++)
		{
			if (form->modulus[side] > MODULUS_LIMIT / radix)
				return false;
			form->modulus[side] *= radix;
		}
	}
	form->bytes = 0;
	for (value = form->modulus[1] - 1; value > 0; value >>= 8)
		form->bytes++;
	return true;
}

/* Expands a key of 16, 24 or 32 bytes; NULL: OpenSSL failed. */
Ff1Key *
ff1_key_new(const uint8 *bytes, int len)
{
	const EVP_CIPHER *aes;
	EVP_CIPHER_CTX *key = EVP_CIPHER_CTX_new();

	if (key == NULL)
		return NULL;
	if (len == 16)
		aes = EVP_aes_128_ecb();
	else
		aes = len == 24 ? EVP_aes_192_ecb() : EVP_aes_256_ecb();
	if (EVP_EncryptInit_ex(key, aes, NULL, bytes, NULL) != 1 ||
		EVP_CIPHER_CTX_set_padding(key, 0) != 1)
	{
		EVP_CIPHER_CTX_free(key);
		return NULL;
	}
	return key;
}

/* Frees and wipes it. */
void
ff1_key_free(Ff1Key *key)
{
	EVP_CIPHER_CTX_free(key);
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

/* The number that these bytes are, 8 or more, modulo "modulus". */
static inline uint64
reduce(const uint8 *bytes, int len, uint64 modulus)
{
	bool		masked = (modulus & (modulus - 1)) == 0;
	uint64		value = 0;

	/* modulo a power of two: the last bits; higher bits leave "value" */
	for (int i = 0; i < len; i++)
	{
		value = value << 8 | bytes[i];
		if (!masked)
			value %= modulus;
	}
	return masked ? value & (modulus - 1) : value;
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
		int			len = Max(Min(tweak_len - i * BLOCK, BLOCK), 0);

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

#endif							/* SNOWID_OPENSSL */
