// Command bolt looks at a file with the real bbolt, and makes one for revgate to look at.
//
//	bolt check FILE   run bbolt's own consistency check
//	bolt dump FILE    print every pair: bucket path, key and value in hex, one a line, in key order
//	bolt make FILE    make a file with nested, inline, branching and overflowing buckets and free pages
//	bolt touch FILE   open for writing, overwrite and delete some keys of bucket "key", close
package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.etcd.io/bbolt"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bolt:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: bolt check|dump|make|touch FILE")
	}
	reading := args[0] == "check" || args[0] == "dump"
	db, err := bbolt.Open(args[1], 0o600, &bbolt.Options{ReadOnly: reading, PreLoadFreelist: true})
	if err != nil {
		return err
	}
	switch args[0] {
	case "check":
		err = db.View(check)
	case "dump":
		err = db.View(dump)
	case "make":
		err = fill(db)
	case "touch":
		err = touch(db)
	default:
		err = fmt.Errorf("no command %q", args[0])
	}
	return errors.Join(err, db.Close())
}

func check(tx *bbolt.Tx) error {
	var found []error
	for err := range tx.Check() {
		found = append(found, err)
	}
	return errors.Join(found...)
}

func dump(tx *bbolt.Tx) error {
	return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
		return dumpBucket(hex.EncodeToString(name), bucket)
	})
}

func dumpBucket(path string, bucket *bbolt.Bucket) error {
	fmt.Println(path)
	return bucket.ForEach(func(key, value []byte) error {
		if value == nil {
			return dumpBucket(path+"/"+hex.EncodeToString(key), bucket.Bucket(key))
		}
		fmt.Println(path, hex.EncodeToString(key), hex.EncodeToString(value))
		return nil
	})
}

func key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func value(n uint64, bytes int) []byte { return []byte(strings.Repeat(string(rune('a'+n%26)), bytes)) }

func fill(db *bbolt.DB) error {
	err := db.Update(func(tx *bbolt.Tx) error {
		large, err1 := tx.CreateBucketIfNotExists([]byte("key"))
		small, err2 := tx.CreateBucketIfNotExists([]byte("small"))
		_, err3 := tx.CreateBucketIfNotExists([]byte("empty"))
		nest, err4 := tx.CreateBucketIfNotExists([]byte("nest"))
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return err
		}
		for n := range uint64(3000) {
			err1 = errors.Join(err1, large.Put(key(n), value(n, int(n%400))))
		}
		for n := range uint64(7) {
			err1 = errors.Join(err1, large.Put(key(400*n), value(n, 100<<10)))
		}
		err1 = errors.Join(err1, small.Put([]byte("a"), []byte("1")), small.Put([]byte("b"), nil))
		inline, err2 := nest.CreateBucket([]byte("inline"))
		paged, err3 := nest.CreateBucket([]byte("paged"))
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		for n := range uint64(500) {
			err1 = errors.Join(err1, paged.Put(key(n), value(n, 50)))
		}
		return errors.Join(err1, inline.Put([]byte("x"), []byte("y")), nest.Put([]byte("plain"), []byte("pair")), nest.SetSequence(42))
	})
	return errors.Join(err, touch(db))
}

func touch(db *bbolt.DB) error {
	return db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("key"))
		if bucket == nil {
			return errors.New("no bucket \"key\"")
		}
		var err error
		for n := range uint64(1000) {
			err = errors.Join(err, bucket.Delete(key(3*n)), bucket.Put(key(3*n+1), value(n, 77)))
		}
		return err
	})
}
