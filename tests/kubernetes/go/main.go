// Renders a chart with Go's own text/template and Sprig: the engine that Helm is built on.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type files struct{ root string }

func (f files) Get(name string) string {
	b, err := os.ReadFile(filepath.Join(f.root, name))
	if err != nil {
		panic(err)
	}
	return string(b)
}

func main() {
	root := os.Args[1]
	var dot map[string]interface{}
	if err := json.NewDecoder(os.Stdin).Decode(&dot); err != nil {
		panic(err)
	}
	dot["Files"] = files{root}
	t := template.New("chart").Option("missingkey=zero")
	fm := sprig.TxtFuncMap()
	delete(fm, "env")
	delete(fm, "expandenv")
	fm["toYaml"] = func(v interface{}) string {
		b, err := yaml.Marshal(v)
		if err != nil {
			return ""
		}
		return strings.TrimSuffix(string(b), "\n")
	}
	fm["fromYaml"] = func(s string) map[string]interface{} {
		m := map[string]interface{}{}
		if err := yaml.Unmarshal([]byte(s), &m); err != nil {
			m["Error"] = err.Error()
		}
		return m
	}
	fm["include"] = func(name string, data interface{}) (string, error) {
		var b bytes.Buffer
		err := t.ExecuteTemplate(&b, name, data)
		return b.String(), err
	}
	fm["required"] = func(warn string, val interface{}) (interface{}, error) {
		if val == nil {
			return val, errors.New(warn)
		}
		if s, ok := val.(string); ok && s == "" {
			return val, errors.New(warn)
		}
		return val, nil
	}
	t.Funcs(fm)
	paths, _ := filepath.Glob(filepath.Join(root, "templates", "*"))
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			panic(err)
		}
		if _, err := t.New(filepath.Base(p)).Parse(string(b)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	out := map[string]string{}
	for _, p := range paths {
		n := filepath.Base(p)
		if strings.HasPrefix(n, "_") {
			continue
		}
		var b bytes.Buffer
		if err := t.ExecuteTemplate(&b, n, dot); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		out[n] = strings.ReplaceAll(b.String(), "<no value>", "")
	}
	json.NewEncoder(os.Stdout).Encode(out)
}
