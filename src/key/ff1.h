/*
 * ff1.h
 *		FF1, the format-preserving encryption of NIST SP 800-38G.
 */
#ifndef SNOWID_KEY_FF1_H
#define SNOWID_KEY_FF1_H

/* A form of numerals: digits of a radix, so many of them, in two halves. */
typedef struct Ff1
{
	int			radix;
	int			length;
	uint64		modulus[2];		/* a half is a number below this */
	int			bytes;			/* that hold the greater half */
} Ff1;

/* An AES key, expanded.  It exists in OpenSSL's memory only. */
typedef struct evp_cipher_ctx_st Ff1Key;

extern bool ff1_init(Ff1 *form, int radix, int length);
extern Ff1Key *ff1_key_new(const uint8 *bytes, int len);
extern void ff1_key_free(Ff1Key *key);
extern bool ff1_crypt(const Ff1 *form, Ff1Key *key, const uint8 *tweak, int tweak_len,
					  bool encrypt, uint64 half[2]);

#endif							/* SNOWID_KEY_FF1_H */
